// Who may ask the dashboard.
#pragma once

#include <optional>
#include <string>

#include <absl/strings/string_view.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/http/message.h"

namespace tandem {

// An error as the API tells it: {"code": "UNAUTHENTICATED", "message": "..."}.
HttpResponse RefuseRequest(int http_status, absl::string_view code, const std::string& message);

// A browser shows the token once and gets a cookie for it; scripts send the token with each request
// as "Authorization: Bearer". Requests that another site makes a browser send are refused: by the
// name in Host (a site that points its own name at this address), and by Origin and Sec-Fetch-Site
// where they would change something. Thread-safe.
class DashboardAccess {
 public:
  // Both as MakeSecret makes them: `token` is shown to the user, `session` is the cookie's value.
  // `clock` must outlive the access.
  DashboardAccess(std::string token, std::string session, Clock& clock);

  // Every request must pass; null: it does.
  std::optional<HttpResponse> RefuseStranger(const HttpRequest& request) const;
  // What shows or changes data must pass this, too. After kMostFailures wrong tokens within a
  // second further ones are answered 429.
  std::optional<HttpResponse> RefuseUnknown(const HttpRequest& request);
  // Answers the token with the cookie.
  HttpResponse BeginSession(const HttpRequest& request);

  static constexpr int kMostFailures = 5;

 private:
  bool HasToken(const HttpRequest& request) const;
  bool HasSession(const HttpRequest& request) const;
  HttpResponse NoteFailure(const HttpRequest& request);
  // Notes a wrong token.
  bool IsGuessing();

  const std::string token_, session_;
  // Browsers send a cookie to all ports of a host: each dashboard there has a name of its own.
  const std::string cookie_;
  Clock& clock_;
  Mutex mutex_;
  Instant second_began_ ABSL_GUARDED_BY(mutex_);
  int failures_ ABSL_GUARDED_BY(mutex_) = 0;  // in the second that began then
};

}  // namespace tandem
