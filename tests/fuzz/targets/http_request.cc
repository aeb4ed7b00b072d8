// A request to the dashboard of a small run: the first line is the target, those after it up to an
// empty one are headers, and the rest is the body. Where there is a body the method is POST.
#include <memory>
#include <string>
#include <string_view>

#include <absl/strings/ascii.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/http/target.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "controller/web/dashboard.h"
#include "tests/fuzz/scratch_dir.h"
#include "tests/fuzz/target.h"

namespace {

const std::string kToken(64, 'a');

// One run, "run", of two steps. Its records are closed, as reading would wait for a writer.
class ServedRun {
 public:
  ServedRun() {
    const auto store = tandem::SqliteRunStore::Open(dir_.path() + "/run.db").value();
    tandem::SampleRecord sample;
    sample.prompt = "prompt";
    sample.response = "response";
    for (int64_t step = 1; step <= 2; ++step) {
      sample.step = step;
      sample.sample_id = static_cast<uint64_t>(step);
      store->RecordStep({.step = step, .metrics = {{tandem::kRewardMean, 0.5}}}).IgnoreError();
      store->RecordSamples(step, {sample}).IgnoreError();
    }
    store->RecordEvents({{.text = "event"}}).IgnoreError();
  }

  tandem::Dashboard& dashboard() { return dashboard_; }

 private:
  tandem::fuzz::ScratchDir dir_;
  tandem::Dashboard dashboard_{{dir_.path()}, kToken, std::string(64, 'b'), tandem::RealClock()};
};

std::string_view TakeLine(std::string_view& rest) {
  const size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return line;
}

}  // namespace

TANDEM_FUZZ_TARGET(http_request) {
  static ServedRun served;
  auto target = tandem::ParseHttpTarget(TakeLine(input));
  if (!target.ok()) return;
  tandem::HttpRequest request;
  request.path = std::move(target->path);
  request.query = std::move(target->query);
  while (!input.empty()) {
    const std::string_view line = TakeLine(input);
    if (line.empty()) break;
    const size_t colon = line.find(':');
    const std::string name = absl::AsciiStrToLower(std::string(line.substr(0, colon)));
    request.headers[name] =
        colon == std::string_view::npos ? "" : std::string(line.substr(colon + 1));
  }
  request.body = std::string(input);
  request.method = request.body.empty() ? "GET" : "POST";
  request.headers.try_emplace("host", "localhost");
  const bool knows_token = request.headers.try_emplace("authorization", "Bearer " + kToken).second;
  const tandem::HttpResponse answer = served.dashboard().Answer(request);
  TANDEM_CHECK(answer.status >= 200 && answer.status < 600, "every request has an answer");
  const bool is_json = answer.content_type == "application/json";
  TANDEM_CHECK(!is_json || nlohmann::json::accept(answer.body), "what is called JSON is JSON");
  const bool has_data = is_json && answer.status == 200;
  TANDEM_CHECK(knows_token || !has_data || request.Header("authorization") == "Bearer " + kToken ||
                   request.Header("cookie").find(std::string(64, 'b')) != std::string::npos,
               "data is for those who know the token");
}
