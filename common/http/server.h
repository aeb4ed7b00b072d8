// A server of HTTP/1.1 on one address.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/http/message.h"

namespace tandem {

struct HttpServerOptions {
  std::string address = "127.0.0.1";  // a number, not a name
  int first_port = 0;                 // 0: any that is free
  int ports = 1;                      // how many from the first on are tried
  int handler_threads = 2;
  uint32_t header_bytes = 8 << 10;
  uint64_t body_bytes = 64 << 10;
  int connections = 64;  // a further one is answered 503 and closed
  // From the beginning of a connection, or the end of the answer before, to the end of a header.
  std::chrono::milliseconds header_patience = std::chrono::seconds(10);
  // For the rest of a request, and for an answer to be taken.
  std::chrono::milliseconds transfer_patience = std::chrono::seconds(30);
};

// Requests of one connection are answered one after another, those of several side by side by
// handler_threads. A request that breaks HTTP or a limit is answered 400, 413 or 431 and its
// connection closed, one that does not come in time has it closed; no handler sees either. An
// answer above 1 KiB is compressed where its reader takes gzip. What a handler throws is answered
// 500.
class HttpServer {
 public:
  // Called from several threads at once.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // InvalidArgument: `address` is no number. Unavailable: no port of the range is free, or the
  // address is not this host's.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           Handler handler);
  // Closes all connections, after the handlers that run have returned.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
