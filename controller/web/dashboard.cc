#include "controller/web/dashboard.h"

#include <utility>

#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>

#include "controller/web/static_files.h"

namespace tandem {
namespace {

constexpr char kApi[] = "/api/v1/";

// Texts of runs are shown by scripts of this server alone, which write them as text: whatever a
// response of a model holds, the browser runs none of it and asks no other host.
void AddSecurityHeaders(HttpResponse& answer) {
  answer.headers.emplace_back(
      "Content-Security-Policy",
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
      "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  answer.headers.emplace_back("X-Content-Type-Options", "nosniff");
  answer.headers.emplace_back("Referrer-Policy", "no-referrer");
  answer.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
}

HttpResponse NotFound(const HttpRequest& request) {
  return RefuseRequest(404, "NOT_FOUND", "there is no page " + request.path);
}

}  // namespace

HttpResponse Dashboard::Answer(const HttpRequest& request) {
  HttpResponse answer = AnswerChecked(request);
  AddSecurityHeaders(answer);
  return answer;
}

HttpResponse Dashboard::AnswerChecked(const HttpRequest& request) {
  if (auto refusal = access_.RefuseStranger(request)) return *std::move(refusal);
  absl::string_view path = request.path;
  if (path == "/healthz" && request.method == "GET") {
    HttpResponse answer;
    answer.content_type = "text/plain; charset=utf-8";
    answer.body = "ok\n";
    return answer;
  }
  if (path == "/api/v1/session" && request.method == "POST") return access_.BeginSession(request);
  if (absl::ConsumePrefix(&path, kApi)) {
    if (auto refusal = access_.RefuseUnknown(request)) return *std::move(refusal);
    HttpResponse answer = api_.Answer(request, absl::StrSplit(path, '/'));
    answer.headers.emplace_back("Cache-Control", "no-store");
    return answer;
  }
  if (request.method != "GET") return NotFound(request);
  return AnswerStaticFile(request).value_or(NotFound(request));
}

}  // namespace tandem
