// A programmer's mistake ends the process, in release builds too.
#pragma once

#include <sstream>
#include <string>

namespace thalweg {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& values);

namespace check_detail {
template <typename A, typename B>
[[noreturn, gnu::cold, gnu::noinline]] void compare_failed(const char* file, int line, const char* condition,
                                                           const A& a, const B& b) {
  std::ostringstream values;
  values << a << " against " << b;
  check_failed(file, line, condition, values.str());
}
}  // namespace check_detail

}  // namespace thalweg

#define THALWEG_CHECK_COMPARE(a, op, b)                                                                 \
  do {                                                                                                  \
    const auto check_a = (a);                                                                           \
    const auto check_b = (b);                                                                           \
    if (!(check_a op check_b)) [[unlikely]]                                                             \
      ::thalweg::check_detail::compare_failed(__FILE__, __LINE__, #a " " #op " " #b, check_a, check_b); \
  } while (false)

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) [[unlikely]]                                            \
      ::thalweg::check_failed(__FILE__, __LINE__, #condition, std::string()); \
  } while (false)
#define CHECK_EQ(a, b) THALWEG_CHECK_COMPARE(a, ==, b)
#define CHECK_NE(a, b) THALWEG_CHECK_COMPARE(a, !=, b)
#define CHECK_LT(a, b) THALWEG_CHECK_COMPARE(a, <, b)
#define CHECK_LE(a, b) THALWEG_CHECK_COMPARE(a, <=, b)
#define CHECK_GT(a, b) THALWEG_CHECK_COMPARE(a, >, b)
#define CHECK_GE(a, b) THALWEG_CHECK_COMPARE(a, >=, b)
