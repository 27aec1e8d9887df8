// For tests: the SHA-256 of bytes in hexadecimal.
#pragma once

#include <openssl/evp.h>

#include <string>
#include <string_view>

namespace thalweg::text {

inline std::string sha256_of(std::string_view bytes) {
  constexpr std::string_view kHex = "0123456789abcdef";
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), sum, &size, EVP_sha256(), nullptr);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text.push_back(kHex[sum[i] >> 4]);
    text.push_back(kHex[sum[i] & 15]);
  }
  return text;
}

}  // namespace thalweg::text
