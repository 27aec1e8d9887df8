# Third-party libraries, as tools/dependencies.txt pins them. Linked statically or header-only.
find_package(Threads REQUIRED)

function(thalweg_header_dependency target header remedy)
  find_path(${target}_INCLUDE_DIR ${header})
  if(NOT ${target}_INCLUDE_DIR)
    message(FATAL_ERROR "${header} is missing; install ${remedy} (or run `make deps`)")
  endif()
  add_library(thalweg_${target} INTERFACE)
  target_include_directories(thalweg_${target} SYSTEM INTERFACE ${${target}_INCLUDE_DIR})
endfunction()

function(thalweg_static_dependency target header archive remedy)
  thalweg_header_dependency(${target} ${header} ${remedy})
  find_library(${target}_ARCHIVE ${archive})
  if(NOT ${target}_ARCHIVE)
    message(FATAL_ERROR "${archive} is missing; install ${remedy} (or run `make deps`)")
  endif()
  target_link_libraries(thalweg_${target} INTERFACE ${${target}_ARCHIVE})
endfunction()

# base compiles fmt's and Boost.JSON's definitions once (base/fmt_definitions.cc, base/json_definitions.cc).
thalweg_header_dependency(fmt fmt/core.h libfmt-dev)
thalweg_header_dependency(spdlog spdlog/spdlog.h libspdlog-dev)
target_compile_definitions(thalweg_spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
thalweg_header_dependency(boost boost/json.hpp libboost1.81-dev)
target_compile_definitions(
  thalweg_boost INTERFACE BOOST_ERROR_CODE_HEADER_ONLY BOOST_JSON_SEPARATE_COMPILATION BOOST_ASIO_SEPARATE_COMPILATION
                          BOOST_BEAST_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED)
target_link_libraries(thalweg_boost INTERFACE Threads::Threads)
thalweg_header_dependency(cli11 CLI/CLI.hpp libcli11-dev)
thalweg_header_dependency(tomlplusplus toml++/toml.h libtomlplusplus-dev)
target_compile_definitions(thalweg_tomlplusplus INTERFACE TOML_EXCEPTIONS=0)
thalweg_static_dependency(yaml_cpp yaml-cpp/yaml.h libyaml-cpp.a libyaml-cpp-dev)
thalweg_static_dependency(xxhash xxhash.h libxxhash.a libxxhash-dev)
thalweg_static_dependency(crypto openssl/evp.h libcrypto.a libssl-dev)
target_link_libraries(thalweg_crypto INTERFACE ${CMAKE_DL_LIBS})

if(THALWEG_TESTS)
  find_package(GTest REQUIRED)
endif()
