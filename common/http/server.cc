#include "common/http/server.h"

#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/http/gzip.h"
#include "common/http/target.h"
#include "common/process/threads.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

constexpr size_t kWorthCompressing = 1 << 10;
// Where no connection can be taken, as all descriptors are in use: until it is tried again.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
// Of a peer that is refused: what it may still send, and how long it may take.
constexpr size_t kIgnoredBytes = 1 << 20;
constexpr auto kIgnoringPatience = std::chrono::seconds(2);

HttpResponse PlainAnswer(int status, const std::string& text) {
  HttpResponse answer;
  answer.status = status;
  answer.content_type = "text/plain; charset=utf-8";
  answer.body = text + "\n";
  return answer;
}

absl::StatusOr<HttpRequest> RequestFrom(http::request<http::string_body>&& message) {
  TANDEM_ASSIGN_OR_RETURN(HttpTarget target, ParseHttpTarget(std::string(message.target())));
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.path = std::move(target.path);
  request.query = std::move(target.query);
  for (const auto& field : message) {
    std::string& value = request.headers[absl::AsciiStrToLower(std::string(field.name_string()))];
    if (!value.empty()) value += ", ";
    value += std::string(field.value());
  }
  request.body = std::move(message.body());
  return request;
}

void Compress(const HttpRequest& request, HttpResponse& answer) {
  if (answer.is_gzip || answer.body.size() < kWorthCompressing) return;
  if (!absl::StrContains(request.Header("accept-encoding"), "gzip")) return;
  std::string compressed = Gzip(answer.body);
  if (compressed.empty()) return;
  answer.body = std::move(compressed);
  answer.is_gzip = true;
}

// What a handler answers, whatever it does.
HttpResponse AnswerOf(const HttpServer::Handler& handler, const HttpRequest& request) {
  try {
    HttpResponse answer = handler(request);
    Compress(request, answer);
    return answer;
  } catch (const std::exception& error) {
    LogError("the answer to {} {} failed: {}", request.method, request.path, error.what());
    return PlainAnswer(500, "the answer failed; the log of this program says why");
  }
}

// How a request that cannot be read is answered; null: by closing the connection alone.
std::optional<HttpResponse> AnswerTo(const beast::error_code& error) {
  if (error == http::error::header_limit) {
    return PlainAnswer(431, "the header of the request is too long");
  }
  if (error == http::error::body_limit) return PlainAnswer(413, "the body is too long");
  if (error == http::error::end_of_stream || error == http::error::partial_message) {
    return std::nullopt;
  }
  const bool breaks_http = error.category() == make_error_code(http::error::bad_method).category();
  if (breaks_http) return PlainAnswer(400, "the request is no HTTP: " + error.message());
  return std::nullopt;
}

// Where memory is short one connection ends, and not the process.
void RunWhole(asio::io_context& context) {
  while (!context.stopped()) {
    try {
      context.run();
    } catch (const std::exception& error) {
      LogError("a connection of HTTP ended: {}", error.what());
    }
  }
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpServerOptions& options, Handler handler)
      : options_(options), handler_(std::move(handler)), acceptor_(connections_context_) {}
  ~Impl();

  absl::Status Listen();
  void Run();
  int port() const { return port_; }

 private:
  class Connection;

  absl::Status ListenOn(const asio::ip::address& address, int port);
  void Accept();

  const HttpServerOptions options_;
  const Handler handler_;
  int port_ = 0;
  int connected_ = 0;  // touched by the thread of connections_context_ alone
  asio::io_context connections_context_{1};
  asio::io_context handlers_context_;
  asio::executor_work_guard<asio::io_context::executor_type> handlers_stay_ =
      asio::make_work_guard(handlers_context_);
  tcp::acceptor acceptor_;
  asio::steady_timer accept_pause_{connections_context_};
  NamedThread connections_thread_;
  std::vector<NamedThread> handler_threads_;
};

// One connection. Its methods run in the thread of connections_context_; each pending operation
// holds a reference, and the last one closes it.
class HttpServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl& server, tcp::socket socket) : server_(server), stream_(std::move(socket)) {
    ++server_.connected_;
  }
  ~Connection() { --server_.connected_; }

  void ReadHeader() {
    parser_.emplace();
    parser_->header_limit(server_.options_.header_bytes);
    parser_->body_limit(server_.options_.body_bytes);
    stream_.expires_after(server_.options_.header_patience);
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](const beast::error_code& error, size_t) {
                              error ? self->Refuse(error) : self->ReadBody();
                            });
  }

  void Refuse(HttpResponse answer) { Write(std::move(answer), false, false); }

 private:
  void ReadBody() {
    stream_.expires_after(server_.options_.transfer_patience);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](const beast::error_code& error, size_t) {
                       error ? self->Refuse(error) : self->Dispatch();
                     });
  }

  void Refuse(const beast::error_code& error) {
    std::optional<HttpResponse> answer = AnswerTo(error);
    answer ? Refuse(*std::move(answer)) : Close();
  }

  void Dispatch() {
    stream_.expires_never();  // a handler takes as long as it takes
    http::request<http::string_body> message = parser_->release();
    const bool keep_alive = message.keep_alive();
    const bool is_head = message.method() == http::verb::head;
    if (is_head) message.method(http::verb::get);
    absl::StatusOr<HttpRequest> request = RequestFrom(std::move(message));
    if (!request.ok()) return Refuse(PlainAnswer(400, std::string(request.status().message())));
    asio::post(server_.handlers_context_, [self = shared_from_this(), keep_alive, is_head,
                                           request = *std::move(request)]() mutable {
      HttpResponse answer = AnswerOf(self->server_.handler_, request);
      // The reference goes along: the connection must end in its own thread.
      const auto executor = self->stream_.get_executor();
      asio::post(executor, [self = std::move(self), keep_alive, is_head,
                            answer = std::move(answer)]() mutable {
        self->Write(std::move(answer), keep_alive, is_head);
      });
    });
  }

  void Write(HttpResponse answer, bool keep_alive, bool is_head) {
    auto message = std::make_shared<http::response<http::string_body>>();
    message->version(11);
    message->result(static_cast<unsigned>(answer.status));
    message->keep_alive(keep_alive);
    if (!answer.content_type.empty()) message->set(http::field::content_type, answer.content_type);
    if (answer.is_gzip) message->set(http::field::content_encoding, "gzip");
    for (const auto& [name, value] : answer.headers) message->insert(name, value);
    message->content_length(answer.body.size());
    if (!is_head) message->body() = std::move(answer.body);
    stream_.expires_after(server_.options_.transfer_patience);
    http::async_write(
        stream_, *message,
        [self = shared_from_this(), message, keep_alive](const beast::error_code& error, size_t) {
          error || !keep_alive ? self->Close() : self->ReadHeader();
        });
  }

  // Reads on for a while: a socket that is closed with bytes unread takes back what it has sent,
  // and the peer would not learn why it was refused.
  void Close() {
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(kIgnoringPatience);
    IgnoreRest(0);
  }

  void IgnoreRest(size_t bytes) {
    if (bytes > kIgnoredBytes) return;
    buffer_.clear();
    stream_.async_read_some(
        buffer_.prepare(4096),
        [self = shared_from_this(), bytes](const beast::error_code& error, size_t more) {
          if (!error) self->IgnoreRest(bytes + more);
        });
  }

  Impl& server_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
};

HttpServer::Impl::~Impl() {
  handlers_context_.stop();
  for (NamedThread& thread : handler_threads_) thread.Join();
  connections_context_.stop();
  connections_thread_.Join();
}

absl::Status HttpServer::Impl::Listen() {
  boost::system::error_code error;
  const asio::ip::address address = asio::ip::make_address(options_.address, error);
  if (error) return InvalidArgument("\"{}\" is no address of a host", options_.address);
  absl::Status status;
  for (int i = 0; i < options_.ports; ++i) {
    status = ListenOn(address, options_.first_port + i);
    if (status.ok()) return status;
  }
  return status;
}

absl::Status HttpServer::Impl::ListenOn(const asio::ip::address& address, int port) {
  const tcp::endpoint endpoint(address, static_cast<uint16_t>(port));
  boost::system::error_code error;
  acceptor_ = tcp::acceptor(connections_context_);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return MakeStatus(absl::StatusCode::kUnavailable, "cannot listen on {}, port {}: {}",
                      options_.address, port, error.message());
  }
  port_ = acceptor_.local_endpoint().port();
  return absl::OkStatus();
}

void HttpServer::Impl::Run() {
  Accept();
  connections_thread_ = NamedThread("http", [this] { RunWhole(connections_context_); });
  for (int i = 0; i < options_.handler_threads; ++i) {
    handler_threads_.emplace_back("http-handler", [this] { RunWhole(handlers_context_); });
  }
}

void HttpServer::Impl::Accept() {
  acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) {
      accept_pause_.expires_after(kAcceptPause);
      accept_pause_.async_wait([this](const boost::system::error_code&) { Accept(); });
      return;
    }
    const bool is_full = connected_ >= options_.connections;
    const auto connection = std::make_shared<Connection>(*this, std::move(socket));
    if (is_full) {
      connection->Refuse(PlainAnswer(503, "there are too many connections; try again"));
    } else {
      connection->ReadHeader();
    }
    Accept();
  });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              Handler handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  TANDEM_RETURN_IF_ERROR(impl->Listen());
  impl->Run();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

int HttpServer::port() const { return impl_->port(); }

}  // namespace tandem
