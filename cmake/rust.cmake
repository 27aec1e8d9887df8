# The Rust libraries behind a C header (rust/include/thalweg_rust.h), one static archive.
if(NOT CARGO_PROGRAM)
  execute_process(
    COMMAND ${PROJECT_SOURCE_DIR}/tools/find_cargo.sh
    OUTPUT_VARIABLE cargo
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(CARGO_PROGRAM ${cargo} CACHE FILEPATH "a cargo with its rustc beside it")
endif()
cmake_path(GET CARGO_PROGRAM PARENT_PATH CARGO_FOLDER)

set(rust_archive ${PROJECT_BINARY_DIR}/rust/release/libthalweg_rust.a)
file(GLOB_RECURSE rust_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/rust/src/*.rs)
add_custom_command(
  OUTPUT ${rust_archive}
  COMMAND ${CMAKE_COMMAND} -E env --modify PATH=path_list_prepend:${CARGO_FOLDER} ${CARGO_PROGRAM} build --quiet --release
          --locked --manifest-path ${PROJECT_SOURCE_DIR}/rust/Cargo.toml --target-dir ${PROJECT_BINARY_DIR}/rust
  DEPENDS ${rust_sources} ${PROJECT_SOURCE_DIR}/rust/Cargo.toml ${PROJECT_SOURCE_DIR}/rust/Cargo.lock
  COMMENT "Building the Rust libraries"
  USES_TERMINAL VERBATIM)
add_custom_target(thalweg_rust_build DEPENDS ${rust_archive})

add_library(thalweg_rust INTERFACE)
add_dependencies(thalweg_rust thalweg_rust_build)
target_include_directories(thalweg_rust SYSTEM INTERFACE ${PROJECT_SOURCE_DIR}/rust/include)
target_link_libraries(thalweg_rust INTERFACE ${rust_archive} Threads::Threads ${CMAKE_DL_LIBS} m)
