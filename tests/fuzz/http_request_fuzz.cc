// Any bytes on a connection to a running server: every one is answered or closed, and the server stays well.
#include <memory>
#include <string>
#include <thread>

#include "base/check.h"
#include "fuzz_target.h"
#include "server/fake_engine.h"
#include "server/server.h"
#include "server/test_client.h"

using namespace thalweg::server;

namespace {

/// Started once; lives as long as the process.
class RunningServer {
 public:
  RunningServer()
      : engine_({}, [](const thalweg::GenerateRequest&, std::int32_t) { return byte_ids("Hello"); }),
        server_({.port = 0, .max_header_bytes = 4096, .max_body_bytes = 64 << 10}, engine_, tokenizer_, &template_) {
    CHECK(server_.listen().has_value());
    thread_ = std::thread([this] { server_.run(); });
  }
  ~RunningServer() {
    server_.stop();
    thread_.join();
  }
  std::uint16_t port() const { return server_.port(); }

 private:
  const ByteTokenizer tokenizer_;
  const PlainTemplate template_;
  FakeEngine engine_;
  Server server_;
  std::thread thread_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const RunningServer server;
  TestClient hostile(server.port());
  hostile.send(std::string_view(reinterpret_cast<const char*>(data), size));
  hostile.close_writing();
  const std::string answer = hostile.read_to_end();
  CHECK(answer.empty() || answer.starts_with("HTTP/1.1 "));

  static std::uint64_t count = 0;
  if (++count % 64 == 0) CHECK_EQ(TestClient(server.port()).call("GET", "/health").status, 200);
  return 0;
}

std::vector<std::string> thalweg::fuzz::seeds() {
  return {
      "GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n"
      "{\"prompt\":\"x\"}",
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
      "e\r\n{\"messages\":[]\r\n1\r\n}\r\n0\r\n\r\n",
      "POST /v1/completions HTTP/1.0\r\nContent-Length: 28\r\n\r\n{\"prompt\":\"x\",\"stream\":true}",
      "OPTIONS /%2Fv1/models/a%20b?c=d HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\nX-Request-Id: i\r\n\r\n",
      "HEAD http://h/metrics HTTP/1.1\r\nHost: x\r\n\r\n",
  };
}
