#include <cmath>
#include <filesystem>
#include <memory>
#include <string>

#include <absl/strings/str_split.h>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/config/config.h"
#include "common/formats/files.h"
#include "common/http/target.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "controller/web/dashboard.h"
#include "tandem/v1/config.pb.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using nlohmann::json;
using testing::Has;

constexpr const char* kData = "tests/controller/store/sqlite/data";

SampleRecord SomeSample(int64_t step, int64_t group, int64_t index, double reward, int64_t length) {
  SampleRecord sample;
  sample.step = step;
  sample.sample_id = static_cast<uint64_t>(step * 100 + group * 10 + index);
  sample.group = group;
  sample.index = index;
  sample.prompt = "prompt of group " + std::to_string(group);
  sample.response = index == 1 ? "a \"100%\" answer\n<img src=x onerror=alert(1)>" : "plain";
  sample.reward = reward;
  sample.response_tokens = length;
  sample.finish_reason = length > 9 ? FinishReason::kLength : FinishReason::kStop;
  sample.min_log_prob = -static_cast<double>(length);
  return sample;
}

StepRecord Step(int64_t number) {
  return {.step = number,
          .version = number,
          .metrics = {{kRewardMean, 0.25 * static_cast<double>(number)},
                      {kLoss, number == 2 ? std::nan("") : 1.0}},
          .phases = {{.phase = "generate", .seconds = 1.5, .peak_bytes = 1 << 20},
                     {.phase = "train", .seconds = 2.5, .peak_bytes = 2 << 20}},
          .groups = {{.group = 0, .samples = 2, .reward_mean = 0.5, .kind = GroupKind::kMixed},
                     {.group = 1, .samples = 2, .reward_mean = 1, .kind = GroupKind::kAllRight}}};
}

// A run with four steps and samples of the last one, and the dashboard of the folder that it is in.
class RunWithDashboard {
 public:
  RunWithDashboard() {
    run_dir_ = dir_.path() / "project" / "exp";
    std::filesystem::create_directories(run_dir_);
    store_ = SqliteRunStore::Open(run_dir_ / "run.db").value();
    v1::Config config = DefaultConfig();
    config.mutable_model()->set_path("models/some");
    config.mutable_rollout()->set_n(4);
    REQUIRE(store_
                ->RecordRun({.run_id = "project/exp/1",
                             .run_dir = run_dir_.string(),
                             .started_at = "2026-01-02T03:04:05Z",
                             .config_yaml = ConfigToYaml(config),
                             .total_steps = 10})
                .ok());
    for (int64_t step = 1; step <= 4; ++step) REQUIRE(store_->RecordStep(Step(step)).ok());
    REQUIRE(store_
                ->RecordSamples(4, {SomeSample(4, 0, 0, 0, 12), SomeSample(4, 0, 1, 1, 3),
                                    SomeSample(4, 1, 0, 1, 5), SomeSample(4, 1, 1, 1, 4)})
                .ok());
    REQUIRE(store_
                ->RecordEvaluation({.step = 4,
                                    .version = 4,
                                    .prompts = 8,
                                    .samples = 8,
                                    .metrics = {{kValRewardMean, 0.75}, {kValRewardInterval, 0.1}},
                                    .seconds = 2})
                .ok());
    REQUIRE(store_
                ->RecordEvents({{.time_us = 1, .step = 1, .text = "first"},
                                {.time_us = 2, .step = 2, .kind = "recovery", .text = "second"}})
                .ok());
  }

  HttpResponse Ask(const std::string& target, const std::string& method = "GET") {
    const HttpTarget parsed = ParseHttpTarget(target).value();
    HttpRequest request;
    request.method = method;
    request.path = parsed.path;
    request.query = parsed.query;
    request.headers = {{"host", "localhost"},
                       {"content-type", "application/json"},
                       {"authorization", "Bearer " + kToken}};
    return dashboard_.Answer(request);
  }

  json Get(const std::string& target) {
    const HttpResponse answer = Ask(target);
    INFO(target << " " << answer.body);
    REQUIRE(answer.status == 200);
    REQUIRE(answer.content_type == "application/json");
    return json::parse(answer.body);
  }

  // The error of a request with this status.
  json Refused(const std::string& target, int status) {
    const HttpResponse answer = Ask(target);
    INFO(target << " " << answer.body);
    REQUIRE(answer.status == status);
    return json::parse(answer.body);
  }

  const std::filesystem::path& run_dir() const { return run_dir_; }
  std::filesystem::path root() const { return dir_.path(); }
  SqliteRunStore& store() { return *store_; }

 private:
  const std::string kToken = std::string(64, 'a');
  testing::TempDir dir_;
  std::filesystem::path run_dir_;
  std::unique_ptr<SqliteRunStore> store_;
  testing::FakeClock clock_;
  Dashboard dashboard_{{dir_.path()}, kToken, std::string(64, 'b'), clock_};
};

std::vector<std::string> Ids(const json& page) {
  std::vector<std::string> ids;
  for (const json& sample : page["samples"]) ids.push_back(sample["sample_id"]);
  return ids;
}

}  // namespace

TEST_CASE("Runs are listed with what they are about", "[web]") {
  RunWithDashboard run;
  const json listed = run.Get("/api/v1/runs")["runs"];
  REQUIRE(listed.size() == 1);
  REQUIRE(listed[0]["id"] == "project.exp");
  REQUIRE(listed[0]["run_dir"] == run.run_dir().string());
  REQUIRE(listed[0]["unreadable"] == "");
  REQUIRE(listed[0]["model"] == "models/some");
  REQUIRE(listed[0]["algorithm"] == "grpo");
  REQUIRE(listed[0]["reward"] == 1);
  REQUIRE(listed[0]["rewards"] == json({0.25, 0.5, 0.75, 1}));
  REQUIRE(listed[0]["held_out"] == 0.75);
  REQUIRE(listed[0]["status"]["step"] == "4");
  REQUIRE(listed[0]["status"]["total_steps"] == "10");
  REQUIRE(run.Get("/api/v1/runs/project.exp")["status"]["from_files"] == true);
}

TEST_CASE("A run that cannot be read says why, and hides no other", "[web]") {
  RunWithDashboard run;
  std::filesystem::create_directories(run.root() / "broken");
  REQUIRE(WriteFileAtomically(run.root() / "broken" / "run.db", "this is no database at all").ok());
  const json listed = run.Get("/api/v1/runs")["runs"];
  REQUIRE(listed.size() == 2);
  REQUIRE(listed[0]["id"] == "broken");
  REQUIRE(Has(listed[0]["unreadable"], "damaged"));
  REQUIRE(listed[1]["unreadable"] == "");
  REQUIRE(Has(run.Refused("/api/v1/runs/broken", 500)["message"], "damaged"));
}

TEST_CASE("The configuration comes with its differences from the defaults", "[web]") {
  RunWithDashboard run;
  const json config = run.Get("/api/v1/runs/project.exp/config");
  REQUIRE(Has(config["yaml"], "models/some"));
  json n;
  for (const json& difference : config["differences"]) {
    if (difference["key"] == "rollout.n") n = difference;
  }
  REQUIRE(n["value"] == "4");
  REQUIRE(n["default"] != "4");
}

TEST_CASE("Curves come by name, long ones in buckets", "[web]") {
  RunWithDashboard run;
  REQUIRE(run.Get("/api/v1/runs/project.exp/metrics")["names"] == json({kLoss, kRewardMean}));
  const std::string names =
      "/api/v1/runs/project.exp/series?name=critic/rewards/mean&name=actor%2Floss&name=none";
  const json exact = run.Get(names)["series"];
  REQUIRE(exact[0]["name"] == kRewardMean);
  REQUIRE(exact[0]["exact"] == true);
  REQUIRE(exact[0]["steps"] == json({1, 2, 3, 4}));
  REQUIRE(exact[0]["mean"] == json({0.25, 0.5, 0.75, 1}));
  REQUIRE(exact[1]["mean"] == json({1, nullptr, 1, 1}));
  REQUIRE(exact[2]["steps"].empty());
  const json buckets = run.Get(names + "&points=2&from=2")["series"][0];
  REQUIRE(buckets["exact"] == false);
  REQUIRE(buckets["steps"] == json({3, 4}));
  REQUIRE(buckets["mean"] == json({0.625, 1}));
  REQUIRE(buckets["min"] == json({0.5, 1}));
  REQUIRE(Has(run.Refused(names + "&points=x", 400)["message"], "points must be a whole number"));
}

TEST_CASE("Steps come newest first, in pages, and one with all that is known of it", "[web]") {
  RunWithDashboard run;
  const json page = run.Get("/api/v1/runs/project.exp/steps?limit=3");
  REQUIRE(page["steps"].size() == 3);
  REQUIRE(page["steps"][0]["step"] == "4");
  REQUIRE(page["next_before"] == 2);
  const json last = run.Get("/api/v1/runs/project.exp/steps?limit=3&before=2");
  REQUIRE(last["steps"].size() == 1);
  REQUIRE(last["next_before"] == 0);
  REQUIRE(run.Get("/api/v1/runs/project.exp/steps?before=1")["steps"].empty());
  const json one = run.Get("/api/v1/runs/project.exp/steps/4");
  REQUIRE(one["step"]["phases"][1]["phase"] == "train");
  REQUIRE(one["groups"][1]["kind"] == "all_right");
  REQUIRE(one["evaluation"]["metrics"][kValRewardMean] == 0.75);
  REQUIRE_FALSE(run.Get("/api/v1/runs/project.exp/steps/3").contains("evaluation"));
  REQUIRE(run.Refused("/api/v1/runs/project.exp/steps/5", 404)["code"] == "NOT_FOUND");
  run.Refused("/api/v1/runs/project.exp/steps/0", 404);
  run.Refused("/api/v1/runs/project.exp/steps/x", 404);
}

TEST_CASE("Samples are filtered, searched and sorted, and paged by a cursor", "[web]") {
  RunWithDashboard run;
  const std::string samples = "/api/v1/runs/project.exp/samples";
  const json newest = run.Get(samples);
  REQUIRE(newest["step"] == "4");
  REQUIRE(newest["total"] == 4);
  REQUIRE(newest["groups"].size() == 2);
  REQUIRE(Ids(newest) == std::vector<std::string>{"400", "401", "410", "411"});
  const auto ids = [&](const std::string& query) { return Ids(run.Get(samples + query)); };
  REQUIRE(ids("?where=reward%3C1") == std::vector<std::string>{"400"});
  REQUIRE(ids("?where=reward=1+and+length%3C5") == std::vector<std::string>{"401", "411"});
  REQUIRE(ids("?where=kind=mixed") == std::vector<std::string>{"400", "401"});
  REQUIRE(ids("?where=end=length") == std::vector<std::string>{"400"});
  REQUIRE(ids("?where=min_log_prob%3C-4") == std::vector<std::string>{"400", "410"});
  REQUIRE(ids("?where=repetition%3C1").empty());  // it is known of none
  REQUIRE(ids("?q=100%25") == std::vector<std::string>{"401", "411"});
  REQUIRE(ids("?q=of+group+1") == std::vector<std::string>{"410", "411"});
  REQUIRE(ids("?q=%27%20OR%201=1--").empty());
  REQUIRE(ids("?sort=-length") == std::vector<std::string>{"400", "410", "411", "401"});
  REQUIRE(ids("?sort=length&limit=2") == std::vector<std::string>{"401", "411"});
  const json first = run.Get(samples + "?sort=length&limit=2");
  REQUIRE(first["next_cursor"] == "2");
  REQUIRE(ids("?sort=length&limit=2&cursor=2") == std::vector<std::string>{"410", "400"});
  REQUIRE(run.Get(samples + "?sort=length&limit=2&cursor=2")["next_cursor"] == "");
  REQUIRE(run.Get(samples + "?where=reward%3C1")["total"] == 1);
  REQUIRE(Has(run.Refused(samples + "?where=x%3E1", 400)["message"], "no field \"x\""));
  REQUIRE(Has(run.Refused(samples + "?sort=x", 400)["message"], "no field \"x\""));
  REQUIRE(run.Get(samples + "?step=9")["total"] == 0);
}

TEST_CASE("One sample comes whole, with the others of its prompt", "[web]") {
  RunWithDashboard run;
  SampleRecord large = SomeSample(4, 2, 0, 0, 7);
  large.response = std::string(1 << 20, 'a') + "\xc3\xa4";
  REQUIRE(run.store().RecordSamples(5, {large}).ok());
  const json one = run.Get("/api/v1/runs/project.exp/samples/4/401");
  REQUIRE(Has(one["sample"]["response"], "<img src=x"));  // as it is: pages write it as text
  REQUIRE(one["siblings"].size() == 2);
  const json row = run.Get("/api/v1/runs/project.exp/samples?step=5")["samples"][0];
  REQUIRE(row["response"].get<std::string>().size() == 2048);
  REQUIRE(row["texts_cut"] == true);
  const json whole = run.Get("/api/v1/runs/project.exp/samples/5/" +
                             row["sample_id"].get<std::string>())["sample"];
  REQUIRE(whole["response"] == large.response);
  run.Refused("/api/v1/runs/project.exp/samples/4/999", 404);
  run.Refused("/api/v1/runs/project.exp/samples/4/x", 404);
}

TEST_CASE("Events come newest first", "[web]") {
  RunWithDashboard run;
  const json events = run.Get("/api/v1/runs/project.exp/events")["events"];
  REQUIRE(events.size() == 2);
  REQUIRE(events[0]["kind"] == "recovery");
  REQUIRE(run.Get("/api/v1/runs/project.exp/events?limit=1")["events"].size() == 1);
  REQUIRE(run.Get("/api/v1/runs/project.exp/evaluations")["evaluations"][0]["step"] == 4);
}

TEST_CASE("What the API does not have is refused", "[web]") {
  RunWithDashboard run;
  run.Refused("/api/v1/", 404);
  run.Refused("/api/v1/runs/", 404);
  run.Refused("/api/v1/runs/none", 404);
  run.Refused("/api/v1/runs/project.exp/none", 404);
  run.Refused("/api/v1/runs/project.exp/steps/1/2", 404);
  REQUIRE(run.Ask("/api/v1/runs", "POST").status == 405);
  REQUIRE(run.Ask("/api/v1/runs", "PUT").status == 405);
  REQUIRE(run.Ask("/none").status == 404);
  REQUIRE(run.Ask("/static/none.js").status == 404);
}

TEST_CASE("Pages are part of the program, and every answer says what a browser may do", "[web]") {
  RunWithDashboard run;
  for (const char* target : {"/", "/static/dygraph.min.js", "/healthz", "/api/v1/runs", "/none"}) {
    INFO(target);
    const HttpResponse answer = run.Ask(target);
    std::map<std::string, std::string> headers(answer.headers.begin(), answer.headers.end());
    REQUIRE(Has(headers["Content-Security-Policy"], "default-src 'none'; script-src 'self'"));
    REQUIRE(headers["X-Content-Type-Options"] == "nosniff");
  }
  const HttpResponse page = run.Ask("/");
  REQUIRE(page.status == 200);
  REQUIRE(page.is_gzip);
  REQUIRE(page.content_type == "text/html; charset=utf-8");
}

TEST_CASE("Runs of older builds are read with what they have, and stay as they are", "[web]") {
  RunWithDashboard run;
  for (const char* version : {"4", "5"}) {
    const std::string name = std::string("schema_") + version;
    const std::filesystem::path dir = run.root() / name;
    std::filesystem::create_directories(dir);
    std::filesystem::copy_file(std::string(kData) + "/" + name + ".db", dir / "run.db");
    const std::string before = ReadWholeFile(dir / "run.db").value();
    const std::string api = "/api/v1/runs/" + name;
    REQUIRE(run.Get(api)["id"] == name);
    const json names = run.Get(api + "/metrics")["names"];
    REQUIRE_FALSE(names.empty());
    const json series = run.Get(api + "/series?name=" + names[0].get<std::string>())["series"][0];
    REQUIRE_FALSE(series["steps"].empty());
    REQUIRE_FALSE(run.Get(api + "/steps")["steps"].empty());
    run.Get(api + "/steps/1");
    const json samples = run.Get(api + "/samples?step=1&sort=min_log_prob&q=a");
    REQUIRE(samples["next_cursor"] == "");
    run.Get(api + "/events");
    run.Get(api + "/config");
    REQUIRE(ReadWholeFile(dir / "run.db").value() == before);
    REQUIRE_FALSE(std::filesystem::exists(dir / "run.db-wal"));
  }
}

}  // namespace tandem
