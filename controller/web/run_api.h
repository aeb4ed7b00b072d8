// The API of the dashboard: what pages and scripts read of runs, as docs/reference/http_api.md
// lists it.
#pragma once

#include <string>
#include <vector>

#include "common/http/message.h"
#include "controller/view/run_catalog.h"
#include "controller/view/run_facts.h"
#include "controller/view/token_view.h"

namespace tandem {

// Reads the files of the runs anew for each request. Thread-safe.
class RunApi {
 public:
  // `catalog` must outlive the API.
  explicit RunApi(const RunCatalog& catalog) : catalog_(catalog) {}

  // `route`: the parts of the path after /api/v1.
  HttpResponse Answer(const HttpRequest& request, const std::vector<std::string>& route);

 private:
  const RunCatalog& catalog_;
  RunFactsReader facts_;
  TokenReader tokens_;
};

}  // namespace tandem
