#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "common/http/server.h"
#include "tests/common/http/http_exchange.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::BodyOf;
using testing::Has;
using testing::HttpConnection;

HttpResponse Echo(const HttpRequest& request) {
  HttpResponse answer;
  answer.content_type = "text/plain";
  answer.body =
      request.method + " " + request.path + " " + request.Header("x-test") + " " + request.body;
  if (const std::string* bytes = request.Parameter("bytes")) {
    answer.body = std::string(std::stoul(*bytes), 'a');
  }
  if (request.path == "/throw") throw std::runtime_error("no answer");
  return answer;
}

std::unique_ptr<HttpServer> Serve(HttpServerOptions options = {},
                                  HttpServer::Handler handler = Echo) {
  auto server = HttpServer::Start(options, std::move(handler));
  REQUIRE(server.ok());
  return *std::move(server);
}

}  // namespace

TEST_CASE("Several requests of one connection are answered in their order", "[http]") {
  const auto server = Serve();
  HttpConnection connection(server->port());
  REQUIRE(BodyOf(connection.Get("/one?x=1", "X-Test: a\r\nX-Test: b\r\n")) == "GET /one a, b ");
  connection.Send(
      "POST /two HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbodyGET /three HTTP/1.1\r\nHost: "
      "h\r\n\r\n");
  REQUIRE(BodyOf(connection.Receive()) == "POST /two  body");
  REQUIRE(BodyOf(connection.Receive()) == "GET /three  ");
  connection.Send("HEAD /four?bytes=9 HTTP/1.1\r\nHost: h\r\n\r\n");
  REQUIRE(Has(connection.ReceiveHeader(), "Content-Length: 9"));
  connection.Send("GET /five HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  REQUIRE(BodyOf(connection.Receive()) == "GET /five  ");
  REQUIRE(connection.IsEnded());
}

TEST_CASE("A long answer is compressed for who takes it", "[http]") {
  const auto server = Serve();
  HttpConnection connection(server->port());
  REQUIRE(BodyOf(connection.Get("/?bytes=5000")).size() == 5000);
  const std::string compressed = connection.Get("/?bytes=5000", "Accept-Encoding: br, gzip\r\n");
  REQUIRE(Has(compressed, "Content-Encoding: gzip"));
  REQUIRE(BodyOf(compressed).size() < 100);
  REQUIRE(BodyOf(connection.Get("/?bytes=100", "Accept-Encoding: gzip\r\n")).size() == 100);
}

TEST_CASE("What is no request, or too large, reaches no handler", "[http]") {
  std::atomic<int> handled = 0;
  const auto server = Serve({.header_bytes = 1000, .body_bytes = 100}, [&](const HttpRequest& r) {
    ++handled;
    return Echo(r);
  });
  const auto answer_to = [&](const std::string& bytes) {
    HttpConnection connection(server->port());
    connection.Send(bytes);
    std::string answer = connection.Receive();
    REQUIRE(connection.IsEnded());
    return answer;
  };
  REQUIRE(Has(answer_to("rubbish\r\n\r\n"), "HTTP/1.1 400"));
  REQUIRE(Has(answer_to("GET /../x HTTP/1.1\r\nHost: h\r\n\r\n"), "HTTP/1.1 400"));
  REQUIRE(Has(answer_to("GET / HTTP/1.1\r\nX: " + std::string(2000, 'a') + "\r\n\r\n"),
              "HTTP/1.1 431"));
  REQUIRE(Has(answer_to("POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n"), "HTTP/1.1 413"));
  REQUIRE(Has(answer_to("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"),
              "HTTP/1.1 400"));
  REQUIRE(handled == 0);
}

TEST_CASE("A handler that throws is answered 500, and the server goes on", "[http]") {
  const auto server = Serve();
  HttpConnection connection(server->port());
  REQUIRE(Has(connection.Get("/throw"), "HTTP/1.1 500"));
  REQUIRE(BodyOf(connection.Get("/next")) == "GET /next  ");
}

TEST_CASE("A connection that sends no request is closed after a while", "[http]") {
  const auto server = Serve({.header_patience = std::chrono::milliseconds(50)});
  HttpConnection silent(server->port());
  HttpConnection slow(server->port());
  slow.Send("GET / HT");
  REQUIRE(silent.IsEnded());
  REQUIRE(slow.IsEnded());
}

TEST_CASE("One connection too many is told so", "[http]") {
  const auto server = Serve({.connections = 2});
  HttpConnection first(server->port()), second(server->port());
  REQUIRE(BodyOf(first.Get("/")) == "GET /  ");
  REQUIRE(BodyOf(second.Get("/")) == "GET /  ");
  HttpConnection third(server->port());
  REQUIRE(Has(third.Receive(), "HTTP/1.1 503"));
}

TEST_CASE("Requests of several connections are answered side by side", "[http]") {
  std::atomic<int> waiting = 0;
  const auto server = Serve({.handler_threads = 2}, [&](const HttpRequest& request) {
    ++waiting;
    while (waiting < 2) std::this_thread::yield();  // the first waits for the second
    return Echo(request);
  });
  HttpConnection first(server->port()), second(server->port());
  first.Send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n");
  second.Send("GET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
  REQUIRE(BodyOf(first.Receive()) == "GET /1  ");
  REQUIRE(BodyOf(second.Receive()) == "GET /2  ");
}

TEST_CASE("A server ends while connections are open and answers under way", "[http]") {
  std::atomic<bool> begun = false, go_on = false;
  auto server = Serve({}, [&](const HttpRequest& request) {
    begun = true;
    while (!go_on) std::this_thread::yield();
    return Echo(request);
  });
  HttpConnection idle(server->port()), asking(server->port());
  asking.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  while (!begun) std::this_thread::yield();
  std::thread ending([&] { server.reset(); });
  go_on = true;
  ending.join();
  REQUIRE(idle.IsEnded());
}

TEST_CASE("A port that is taken is an error, or the next one is used", "[http]") {
  const auto server = Serve();
  const HttpServerOptions taken = {.first_port = server->port()};
  const auto refused = HttpServer::Start(taken, Echo);
  REQUIRE(absl::IsUnavailable(refused.status()));
  REQUIRE(Has(std::string(refused.status().message()), std::to_string(server->port())));
  const auto no_address = HttpServer::Start({.address = "localhost"}, Echo);
  REQUIRE(absl::IsInvalidArgument(no_address.status()));
}

}  // namespace tandem
