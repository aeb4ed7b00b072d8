#include "controller/cli/api_commands.h"

#include <atomic>
#include <memory>
#include <sstream>
#include <string>

#include <catch2/catch.hpp>

#include "common/net/server.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

class FakeApi final : public v1::TandemService::Service {
 public:
  // Shared by the test and gRPC's threads.
  std::atomic<int> waits = 0;
  std::atomic<bool> weights_agree = true;
  std::atomic<bool> partial = false;

  grpc::Status GetStatus(grpc::ServerContext*,
                         const v1::GetStatusRequest*,
                         v1::GetStatusResponse* reply) override {
    reply->set_run_id("fake");
    reply->set_step(3);
    return grpc::Status::OK;
  }
  grpc::Status ListSamples(grpc::ServerContext*,
                           const v1::ListSamplesRequest* request,
                           v1::ListSamplesResponse* reply) override {
    if (request->step() != 3) return {grpc::StatusCode::NOT_FOUND, "no such step"};
    reply->add_samples()->set_response("9 + 4 = 13");
    reply->set_total(1);
    return grpc::Status::OK;
  }
  grpc::Status ListSteps(grpc::ServerContext*,
                         const v1::ListStepsRequest* request,
                         v1::ListStepsResponse* reply) override {
    if (request->undone()) {
      if (request->last_step() == 0) reply->add_steps()->set_step(2);
      if (request->last_step() == 0) reply->mutable_steps(0)->set_undone_by(7);
      return grpc::Status::OK;
    }
    for (int64_t s = request->first_step(); s <= request->last_step(); ++s) {
      v1::StepRecord* const step = reply->add_steps();
      step->set_step(s);
      if (partial) (*step->mutable_metrics())["partial/rounds"] = 2;
    }
    return grpc::Status::OK;
  }
  grpc::Status Run(grpc::ServerContext*,
                   const v1::RunRequest* request,
                   v1::Operation* reply) override {
    if (request->request_id().empty()) return {grpc::StatusCode::INVALID_ARGUMENT, "no id"};
    reply->set_id("op");
    reply->set_first_step(4);
    return grpc::Status::OK;
  }
  grpc::Status WaitOperation(grpc::ServerContext*,
                             const v1::WaitOperationRequest*,
                             v1::Operation* reply) override {
    reply->set_id("op");
    reply->set_first_step(4);
    const int wait = ++waits;
    reply->set_last_step(3 + wait);
    reply->set_done(wait == 2);
    return grpc::Status::OK;
  }
  grpc::Status CheckWeights(grpc::ServerContext*,
                            const v1::CheckRequest*,
                            v1::CheckResponse* reply) override {
    reply->set_ok(weights_agree);
    reply->set_mismatched(weights_agree ? 0 : 1);
    return grpc::Status::OK;
  }
};

struct ApiCommandsFixture {
  FakeApi service;
  std::unique_ptr<RpcServer> server =
      RpcServer::Start("127.0.0.1:0", {&service}, {.open_to_this_host = true}).value();
  std::ostringstream out;
  ApiCommands Connect(bool json = false) {
    return ApiCommands::Connect(server->address(), {}, json, &out).value();
  }
  bool Printed(const std::string& part) const { return out.str().find(part) != std::string::npos; }
};

}  // namespace

TEST_CASE("ApiCommands shows status and the samples of the newest step", "[ctl][api]") {
  ApiCommandsFixture f;
  ApiCommands api = f.Connect();
  ReadingCommands reading(api, false, f.out);
  REQUIRE(reading.ShowStatus().ok());
  REQUIRE(f.Printed("run fake"));
  REQUIRE(reading.Samples({.width = 40}).ok());
  REQUIRE(f.Printed("9 + 4 = 13"));
  REQUIRE(reading.Samples({.step = 8}).code() == absl::StatusCode::kNotFound);
}

TEST_CASE("ApiCommands shows steps that were undone, and who repeated them", "[ctl][api]") {
  ApiCommandsFixture f;
  ApiCommands api = f.Connect();
  ReadingCommands reading(api, false, f.out);
  REQUIRE(reading.Steps({.undone = true}).ok());
  REQUIRE(f.Printed("generation 7"));
  REQUIRE(reading.Steps({.last_step = 1, .undone = true}).ok());
  REQUIRE(f.Printed("no step was undone"));
  const absl::Status none = reading.Samples({.step = 8, .undone_by = 5});
  REQUIRE(none.code() == absl::StatusCode::kNotFound);
}

TEST_CASE("ApiCommands shows the newest step's partial rollout beside the status", "[ctl][api]") {
  ApiCommandsFixture f;
  ApiCommands api = f.Connect();
  ReadingCommands reading(api, false, f.out);
  REQUIRE(reading.ShowStatus().ok());
  REQUIRE_FALSE(f.Printed("partial rollout"));
  f.service.partial = true;
  REQUIRE(reading.ShowStatus().ok());
  REQUIRE(f.Printed("\npartial rollout in step 3: 2 rounds\n"));
}

TEST_CASE("ApiCommands follows a run step by step until it is done", "[ctl][api]") {
  ApiCommandsFixture f;
  ApiCommands api = f.Connect();
  REQUIRE(api.Run(2, true).ok());
  REQUIRE(f.service.waits.load() == 2);
  REQUIRE(f.Printed("operation op done, last step 5"));
}

TEST_CASE("ApiCommands prints JSON for machines", "[ctl][api]") {
  ApiCommandsFixture f;
  ApiCommands api = f.Connect(true);
  REQUIRE(ReadingCommands(api, true, f.out).ShowStatus().ok());
  REQUIRE(f.out.str().front() == '{');
}

TEST_CASE("ApiCommands fails when the weights differ", "[ctl][api]") {
  ApiCommandsFixture f;
  REQUIRE(f.Connect().Check("").ok());
  f.service.weights_agree = false;
  REQUIRE(f.Connect().Check("").code() == absl::StatusCode::kDataLoss);
  REQUIRE(f.Printed("WEIGHTS DIFFER"));
}

TEST_CASE("ApiCommands refuses a prompt that is not UTF-8 before it is sent", "[ctl][api]") {
  ApiCommandsFixture f;
  const absl::Status status = f.Connect().Generate({.prompt = "\xff\xfe"});
  REQUIRE(absl::IsInvalidArgument(status));
  REQUIRE(status.message() == "the prompt is not UTF-8");
}

TEST_CASE("ApiCommands names a controller that is not there", "[ctl][api]") {
  std::ostringstream out;
  auto api = ApiCommands::Connect("unix:/nonexistent/controller.sock", {}, false, &out).value();
  const absl::Status status = ReadingCommands(api, false, out).ShowStatus();
  REQUIRE(status.code() == absl::StatusCode::kUnavailable);
  REQUIRE(std::string(status.message()).find("/nonexistent/controller.sock") != std::string::npos);
}
