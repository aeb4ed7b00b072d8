#include "controller/web/static_files.h"

#include <string>
#include <string_view>

#include <absl/strings/match.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>

#include "controller/web/embedded_files.h"

namespace tandem {
namespace {

std::string ContentTypeOf(absl::string_view name) {
  if (absl::EndsWith(name, ".html")) return "text/html; charset=utf-8";
  if (absl::EndsWith(name, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(name, ".js")) return "text/javascript; charset=utf-8";
  if (absl::EndsWith(name, ".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

}  // namespace

std::optional<HttpResponse> AnswerStaticFile(const HttpRequest& request) {
  absl::string_view name = request.path;
  if (name == "/") {
    name = "index.html";
  } else if (!absl::ConsumePrefix(&name, "/static/")) {
    return std::nullopt;
  }
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    if (std::string_view(name.data(), name.size()) != file.name) continue;
    HttpResponse answer;
    const std::string tag = "\"" + std::string(file.digest) + "\"";
    answer.headers.emplace_back("ETag", tag);
    answer.headers.emplace_back("Cache-Control", "no-cache");  // asks whether it has changed
    if (request.Header("if-none-match") == tag) {
      answer.status = 304;
      return answer;
    }
    answer.content_type = ContentTypeOf(name);
    answer.is_gzip = true;
    answer.body = std::string(file.gzip);
    return answer;
  }
  return std::nullopt;
}

}  // namespace tandem
