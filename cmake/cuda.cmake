# The GPU part: libthalweg_cuda.so from every .cu file, loaded at run time where a driver is (docs/decisions/0016-cuda.md).

# The program and the library are built with the same border headers or refuse each other. `thalweg_cuda_border(target)`
# tells a target the hash of their text.
file(GLOB_RECURSE THALWEG_CUDA_BORDER_HEADERS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/*/sm90.h)
list(APPEND THALWEG_CUDA_BORDER_HEADERS ${PROJECT_SOURCE_DIR}/src/device/cuda/table.h
     ${PROJECT_SOURCE_DIR}/src/kernels/cuda_kernels.h)
list(SORT THALWEG_CUDA_BORDER_HEADERS)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${THALWEG_CUDA_BORDER_HEADERS})
set(border_text "")
foreach(header IN LISTS THALWEG_CUDA_BORDER_HEADERS)
  file(SHA256 ${header} header_hash)
  string(APPEND border_text ${header_hash})
endforeach()
string(SHA256 border_hash ${border_text})
string(SUBSTRING ${border_hash} 0 16 THALWEG_CUDA_BORDER)
function(thalweg_cuda_border source)
  set_property(SOURCE ${source} APPEND PROPERTY COMPILE_DEFINITIONS THALWEG_CUDA_BORDER="${THALWEG_CUDA_BORDER}")
endfunction()

option(THALWEG_CUDA "Build libthalweg_cuda.so for compute capability 9.0" OFF)
if(NOT THALWEG_CUDA)
  return()
endif()

set(THALWEG_CUDA_TOOLKIT "" CACHE PATH "Root of a CUDA 13.0 toolkit (tools/install_cuda.sh FOLDER; FOLDER/nvidia/cu13)")
if(NOT EXISTS ${THALWEG_CUDA_TOOLKIT}/bin/nvcc)
  message(FATAL_ERROR "THALWEG_CUDA_TOOLKIT is '${THALWEG_CUDA_TOOLKIT}', where no bin/nvcc is; `make cuda` installs one")
endif()
set(CMAKE_CUDA_COMPILER ${THALWEG_CUDA_TOOLKIT}/bin/nvcc)
set(CMAKE_CUDA_ARCHITECTURES 90a-real) # machine code alone: nothing is compiled at start
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG") # an assert in device code keeps wgmma from running asynchronously
enable_language(CUDA)
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20) # CMake 3.25 does not know nvcc 13's dialects
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)
# ptxas tells where it had to serialise wgmma, but does not fail.
set(CMAKE_CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/nvcc_launcher.sh ${CCACHE_PROGRAM})

add_library(thalweg_cuda_options INTERFACE)
target_include_directories(thalweg_cuda_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(
  thalweg_cuda_options
  INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:
            --fmad=false # as compile_options.cmake for the CPU: fmaf says where
            --expt-relaxed-constexpr
            --Werror=all-warnings
            -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers,-ffunction-sections>)

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cu)
list(FILTER cuda_sources EXCLUDE REGEX "_(test|bench)\\.cu$")
add_library(thalweg_cuda_objects OBJECT ${cuda_sources})
target_link_libraries(thalweg_cuda_objects PRIVATE thalweg_cuda_options)
thalweg_cuda_border(${PROJECT_SOURCE_DIR}/src/kernels/cuda_kernels.cu)

# The CUDA runtime inside is static, its calls find the driver by themselves. One symbol goes out.
add_library(thalweg_cuda MODULE $<TARGET_OBJECTS:thalweg_cuda_objects>)
set_target_properties(
  thalweg_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} LINKER_LANGUAGE CUDA
                          LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/cuda_exports.txt)
target_link_options(thalweg_cuda PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/cuda_exports.txt -Wl,-z,defs)
