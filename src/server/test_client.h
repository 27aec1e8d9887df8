// For the server's tests: a blocking HTTP client on a raw socket that does exactly what it is told.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace thalweg::server {

struct TestResponse {
  int status = 0;
  std::string head;  // with the status line
  std::string body;  // unchunked

  /// Value of a header, empty if absent; `name` in the letters that the server uses.
  std::string header(const std::string& name) const {
    const std::size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const std::size_t from = at + name.size() + 4;
    return head.substr(from, head.find("\r\n", from) - from);
  }
};

class TestClient {
 public:
  explicit TestClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~TestClient() { close(); }
  TestClient(TestClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), buffer_(std::move(other.buffer_)) {}
  TestClient(const TestClient&) = delete;

  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  void close_writing() const { ::shutdown(socket_, SHUT_WR); }
  int socket() const { return socket_; }

  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void send_request(std::string_view method, std::string_view path, std::string_view body = {},
                    std::string_view headers = {}) const {
    std::string text(method);
    text.append(" ").append(path).append(" HTTP/1.1\r\nHost: test\r\n").append(headers);
    if (!body.empty() || method == "POST") {
      text.append("Content-Type: application/json\r\nContent-Length: ")
          .append(std::to_string(body.size()))
          .append("\r\n");
    }
    send(text.append("\r\n").append(body));
  }

  /// False at the end of input or after 20 s of silence.
  bool receive() {
    char space[16384];
    const ssize_t received = ::recv(socket_, space, sizeof(space), 0);
    if (received <= 0) return false;
    buffer_.append(space, static_cast<std::size_t>(received));
    return true;
  }

  /// Up to and with `mark`; what there is if the input ends before.
  std::string read_until(std::string_view mark) {
    std::size_t searched = 0;
    while (true) {
      const std::size_t at = buffer_.find(mark, searched);
      if (at != std::string::npos) return take(at + mark.size());
      searched = buffer_.size() > mark.size() ? buffer_.size() - mark.size() : 0;
      if (!receive()) return take(buffer_.size());
    }
  }
  std::string read_bytes(std::size_t count) {
    while (buffer_.size() < count && receive()) {
    }
    return take(std::min(count, buffer_.size()));
  }
  std::string read_to_end() {
    while (receive()) {
    }
    return take(buffer_.size());
  }
  bool at_end() { return buffer_.empty() && !receive(); }

  TestResponse read_response(bool has_body = true) {
    TestResponse response;
    response.head = read_until("\r\n\r\n");
    if (response.head.size() > 12) response.status = std::atoi(response.head.c_str() + 9);
    if (!has_body) return response;
    if (response.head.find("Transfer-Encoding: chunked") != std::string::npos) {
      while (true) {
        const std::string chunk = read_chunk();
        if (chunk.empty()) break;
        response.body += chunk;
      }
    } else if (const std::string length = response.header("Content-Length"); !length.empty()) {
      response.body = read_bytes(std::strtoul(length.c_str(), nullptr, 10));
    }
    return response;
  }
  /// One HTTP chunk; empty for the last one.
  std::string read_chunk() {
    const std::size_t size = std::strtoul(read_until("\r\n").c_str(), nullptr, 16);
    std::string chunk = read_bytes(size);
    read_bytes(2);
    return chunk;
  }

  TestResponse call(std::string_view method, std::string_view path, std::string_view body = {},
                    std::string_view headers = {}) {
    send_request(method, path, body, headers);
    return read_response(method != "HEAD");
  }

 private:
  std::string take(std::size_t count) {
    std::string taken = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return taken;
  }

  int socket_;
  std::string buffer_;
};

}  // namespace thalweg::server
