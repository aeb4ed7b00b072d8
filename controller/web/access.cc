#include "controller/web/access.h"

#include <array>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include "common/process/files/run_token.h"
#include "controller/web/json_object.h"

namespace tandem {
namespace {

constexpr char kScheme[] = "Bearer ";

// "localhost" of "localhost:7460", "[::1]" of "[::1]:7460". The port is not compared: a tunnel may
// lead here from another one.
std::string NameInHost(const std::string& host) {
  const size_t end_of_number = host.find(']');
  const size_t colon = host.find(':', end_of_number == std::string::npos ? 0 : end_of_number);
  return host.substr(0, colon);
}

bool IsOwnName(const std::string& name) {
  static constexpr std::array<const char*, 3> kNames = {"127.0.0.1", "localhost", "[::1]"};
  for (const char* own : kNames) {
    if (name == own) return true;
  }
  return false;
}

// Whether a page of this dashboard made the browser send it, or no browser did.
bool IsFromOwnPage(const HttpRequest& request) {
  const std::string site = request.Header("sec-fetch-site");
  if (!site.empty() && site != "same-origin") return false;
  const std::string origin = request.Header("origin");
  return origin.empty() || origin == "http://" + request.Header("host") ||
         origin == "https://" + request.Header("host");
}

}  // namespace

HttpResponse RefuseRequest(int http_status, absl::string_view code, const std::string& message) {
  HttpResponse answer;
  answer.status = http_status;
  answer.content_type = "application/json";
  answer.body =
      JsonObject().AddText("code", {code.data(), code.size()}).AddText("message", message).Finish();
  return answer;
}

DashboardAccess::DashboardAccess(std::string token, std::string session, Clock& clock)
    : token_(std::move(token)),
      session_(std::move(session)),
      cookie_("tandem_session_" + session_.substr(0, 8)),
      clock_(clock) {}

std::optional<HttpResponse> DashboardAccess::RefuseStranger(const HttpRequest& request) const {
  if (!IsOwnName(absl::AsciiStrToLower(NameInHost(request.Header("host"))))) {
    return RefuseRequest(
        421, "PERMISSION_DENIED",
        "the dashboard answers to 127.0.0.1, localhost and [::1] alone; open it by "
        "one of these names");
  }
  if (request.method == "GET") return std::nullopt;
  if (request.method != "POST") {
    return RefuseRequest(405, "UNIMPLEMENTED", "the dashboard takes GET and POST");
  }
  if (!absl::StartsWith(request.Header("content-type"), "application/json")) {
    return RefuseRequest(415, "INVALID_ARGUMENT", "the body must be application/json");
  }
  if (!IsFromOwnPage(request)) {
    return RefuseRequest(403, "PERMISSION_DENIED",
                         "the request comes from the page of another site");
  }
  return std::nullopt;
}

std::optional<HttpResponse> DashboardAccess::RefuseUnknown(const HttpRequest& request) {
  if (HasToken(request) || HasSession(request)) return std::nullopt;
  return NoteFailure(request);
}

HttpResponse DashboardAccess::BeginSession(const HttpRequest& request) {
  if (!HasToken(request)) return NoteFailure(request);
  HttpResponse answer;
  answer.status = 204;
  answer.headers.emplace_back("Set-Cookie",
                              cookie_ + "=" + session_ + "; HttpOnly; SameSite=Strict; Path=/");
  return answer;
}

bool DashboardAccess::HasToken(const HttpRequest& request) const {
  const std::string header = request.Header("authorization");
  return absl::StartsWith(header, kScheme) &&
         IsRunToken(token_, header.substr(sizeof(kScheme) - 1));
}

bool DashboardAccess::HasSession(const HttpRequest& request) const {
  const std::string cookies = request.Header("cookie");
  for (absl::string_view cookie : absl::StrSplit(cookies, ';')) {
    while (absl::ConsumePrefix(&cookie, " ")) {
    }
    if (!absl::ConsumePrefix(&cookie, cookie_) || !absl::ConsumePrefix(&cookie, "=")) continue;
    if (IsRunToken(session_, std::string(cookie))) return true;
  }
  return false;
}

HttpResponse DashboardAccess::NoteFailure(const HttpRequest& request) {
  if (!request.Header("authorization").empty() && IsGuessing()) {
    return RefuseRequest(429, "RESOURCE_EXHAUSTED", "too many wrong tokens; wait a second");
  }
  return RefuseRequest(401, "UNAUTHENTICATED",
                       "open the whole address that the program printed, with what follows #t=; "
                       "scripts send it as \"Authorization: Bearer TOKEN\"");
}

bool DashboardAccess::IsGuessing() {
  const MutexLock lock(mutex_);
  const Instant now = clock_.Now();
  if (now - second_began_ >= absl::Seconds(1)) {
    second_began_ = now;
    failures_ = 0;
  }
  return ++failures_ > kMostFailures;
}

}  // namespace tandem
