# One interface target with everything that our own code is compiled with.
add_library(thalweg_options INTERFACE)
target_include_directories(thalweg_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(
  thalweg_options
  INTERFACE -Wall
            -Wextra
            -Wshadow
            -Wno-missing-field-initializers
            # A fused multiply-add happens where the source says so, or results would differ between kernels
            # that promise to agree.
            -ffp-contract=off)

set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O2")

if(THALWEG_SANITIZER STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(THALWEG_SANITIZER STREQUAL "thread")
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
else()
  # One file copied to another Linux machine runs there: only glibc stays dynamic.
  add_link_options(-static-libstdc++ -static-libgcc)
endif()
add_link_options(-Wl,--gc-sections)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# Kernel files are compiled for the instruction set in their name: gemm_avx2.cc or gemm/avx2.cc. Such a file includes
# no standard header with code in it beyond <cstdint>-like ones: an inline function compiled there could be the copy
# that the linker keeps for everybody.
set(THALWEG_AVX2_FLAGS -mavx2 -mfma -mf16c -O3)
set(THALWEG_AVX512_FLAGS ${THALWEG_AVX2_FLAGS} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
set(THALWEG_AVX512_VNNI_FLAGS ${THALWEG_AVX512_FLAGS} -mavx512vnni)

function(thalweg_set_instruction_sets)
  foreach(source IN LISTS ARGN)
    foreach(set IN ITEMS AVX2 AVX512 AVX512_VNNI)
      string(TOLOWER ${set} lower)
      if(source MATCHES "(^|[/_])${lower}\\.cc$")
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${THALWEG_${set}_FLAGS})
        set_property(SOURCE ${source} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endforeach()
  endforeach()
endfunction()
