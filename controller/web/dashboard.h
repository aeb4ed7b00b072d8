// The dashboard: pages, their API, and who may see them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/base/clock.h"
#include "common/http/message.h"
#include "controller/view/run_catalog.h"
#include "controller/web/access.h"
#include "controller/web/run_api.h"

namespace tandem {

// Answers the requests of browsers and scripts. Thread-safe.
class Dashboard {
 public:
  // `roots` as RunCatalog has them; `clock` must outlive the dashboard.
  Dashboard(std::vector<std::string> roots, std::string token, std::string session, Clock& clock)
      : catalog_(std::move(roots)),
        api_(catalog_),
        access_(std::move(token), std::move(session), clock) {}

  HttpResponse Answer(const HttpRequest& request);

 private:
  HttpResponse AnswerChecked(const HttpRequest& request);

  const RunCatalog catalog_;
  RunApi api_;
  DashboardAccess access_;
};

}  // namespace tandem
