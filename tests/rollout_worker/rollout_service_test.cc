#include <catch2/catch.hpp>

#include "common/base/clock.h"
#include "common/config/config.h"
#include "common/net/grpc_status.h"
#include "common/net/worker_codec.h"
#include "rollout_worker/worker_options.h"
#include "tandem/v1/config.pb.h"
#include "tests/rollout_worker/served_engine.h"

namespace tandem {
namespace {

using namespace tandem::testing;

}  // namespace

TEST_CASE("Calls are Unavailable before the worker is ready and Aborted for another incarnation") {
  Served served;
  v1::WakeRequest request;
  v1::WakeResponse response;
  REQUIRE(served.stub->Wake(Served::Context().get(), request, &response).error_code() ==
          grpc::StatusCode::UNAVAILABLE);
  served.SetReady();
  request.set_incarnation(6);
  const grpc::Status refused = served.stub->Wake(Served::Context().get(), request, &response);
  REQUIRE(refused.error_code() == grpc::StatusCode::ABORTED);
  const auto info = GetErrorInfo(FromGrpcStatus(refused));
  REQUIRE(info.has_value());
  REQUIRE(info->worker().rank() == 3);
  REQUIRE(info->phase() == "Serving");
  request.set_incarnation(7);
  REQUIRE(served.stub->Wake(Served::Context().get(), request, &response).ok());
}

TEST_CASE("Generate streams tokens and finished samples") {
  Served served;
  served.SetReady();
  GenerationRequest request = MixedRequests({12}, 3, 30)[0];
  request.stream_tokens = true;
  request.group = 11;
  const auto context = Served::Context();
  const auto reader = served.stub->Generate(context.get(), ProtoOf(request));
  v1::GenerateEvent event;
  std::map<int, std::vector<int32_t>> streamed;
  SamplesById samples;
  while (reader->Read(&event)) {
    if (event.has_tokens()) {
      for (const int32_t token : event.tokens().tokens()) {
        streamed[event.tokens().index()].push_back(token);
      }
    } else {
      const Sample sample = FromProto(event.finished());
      samples.emplace(sample.sample_id, sample);
    }
  }
  REQUIRE(reader->Finish().ok());
  Rig rig(served.weights, {});
  RequireSame(samples, GenerateAll(rig, {request}));
  for (const auto& [id, sample] : samples) {
    REQUIRE(sample.group == 11);
    const std::vector<int32_t> response(sample.tokens.begin() + 12, sample.tokens.end());
    REQUIRE(streamed[static_cast<int>(sample.index)] == response);
  }
}

TEST_CASE("A cancelled Generate ends its samples") {
  Served served;
  served.SetReady();
  GenerationRequest request = MixedRequests({12}, 4, 490)[0];
  request.params.ignore_eos = true;
  request.stream_tokens = true;
  const auto context = Served::Context();
  const auto reader = served.stub->Generate(context.get(), ProtoOf(request));
  v1::GenerateEvent event;
  REQUIRE(reader->Read(&event));
  context->TryCancel();
  while (reader->Read(&event)) {
  }
  REQUIRE(reader->Finish().error_code() == grpc::StatusCode::CANCELLED);
  // Sleep drains: it would take all 490 tokens if the request still ran.
  REQUIRE(Sleep(*served.engine, {}).ok());
  REQUIRE(served.engine->status().load.running == 0);
}

TEST_CASE("Sleep with abort ends a Generate under way with aborted samples") {
  Served served;
  served.SetReady();
  GenerationRequest request = MixedRequests({12}, 4, 490)[0];
  request.params.ignore_eos = true;
  request.stream_tokens = true;
  const auto context = Served::Context();
  const auto reader = served.stub->Generate(context.get(), ProtoOf(request));
  v1::GenerateEvent event;
  REQUIRE(reader->Read(&event));
  v1::SleepRequest sleep;
  sleep.set_incarnation(7);
  sleep.set_level(2);
  sleep.set_abort_running(true);
  v1::SleepResponse slept;
  REQUIRE(served.stub->Sleep(Served::Context().get(), sleep, &slept).ok());
  REQUIRE(slept.freed_bytes() > 0);
  int aborted = 0;
  do {
    if (event.has_finished() && event.finished().finish_reason() == v1::FINISH_REASON_ABORTED) {
      ++aborted;
    }
  } while (reader->Read(&event));
  REQUIRE(reader->Finish().ok());
  REQUIRE(aborted == 4);
}

TEST_CASE("A refused Generate ends with the reason and no event") {
  Served served;
  served.SetReady();
  GenerationRequest request = MixedRequests({12}, 1, 30)[0];
  request.version = 9;
  const auto context = Served::Context();
  const auto reader = served.stub->Generate(context.get(), ProtoOf(request));
  v1::GenerateEvent event;
  REQUIRE(!reader->Read(&event));
  const grpc::Status status = reader->Finish();
  REQUIRE(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  REQUIRE(status.error_message().find("version 9") != std::string::npos);
}

TEST_CASE("Sleep and wake report bytes, seconds and ledger; status tells the state") {
  Served served;
  served.SetReady();
  v1::SleepRequest sleep;
  sleep.set_incarnation(7);
  sleep.set_level(1);
  v1::SleepResponse slept;
  REQUIRE(served.stub->Sleep(Served::Context().get(), sleep, &slept).ok());
  REQUIRE(slept.freed_bytes() > 0);
  REQUIRE(slept.report().phase() == "sleep");
  REQUIRE(slept.report().ledger().entries_size() > 0);
  v1::RolloutStatusResponse status;
  REQUIRE(served.stub->GetStatus(Served::Context().get(), {}, &status).ok());
  REQUIRE(status.state() == v1::ASLEEP);
  REQUIRE(status.worker().incarnation() == 7);
  REQUIRE(status.kv_blocks() == 16 * 8);
  v1::WakeRequest wake;
  wake.set_incarnation(7);
  v1::WakeResponse woken;
  REQUIRE(served.stub->Wake(Served::Context().get(), wake, &woken).ok());
  REQUIRE(woken.taken_bytes() == slept.freed_bytes());
  REQUIRE(served.stub->GetStatus(Served::Context().get(), {}, &status).ok());
  REQUIRE(status.state() == v1::SERVING);
  REQUIRE(status.version() == 0);
}

TEST_CASE("A rollout that was told of a newer group of trainers refuses an older one's update") {
  Served served;
  served.SetReady();
  // That of a newer one has no tensor, and is refused for that.
  const auto begin = [&](int64_t group) {
    v1::BeginUpdateRequest request;
    request.set_incarnation(7);
    request.set_version(2);
    request.set_generation(100);
    request.set_slots(1);
    request.set_slot_bytes(4096);
    request.set_group_generation(group);
    v1::BeginUpdateResponse response;
    return served.stub->BeginUpdate(Served::Context().get(), request, &response).error_code();
  };
  REQUIRE(begin(3) == grpc::StatusCode::INVALID_ARGUMENT);
  v1::WakeRequest wake;
  wake.set_incarnation(7);
  wake.set_group_generation(5);
  v1::WakeResponse woken;
  REQUIRE(served.stub->Wake(Served::Context().get(), wake, &woken).ok());
  REQUIRE(begin(4) == grpc::StatusCode::ABORTED);
  REQUIRE(begin(5) == grpc::StatusCode::INVALID_ARGUMENT);
  v1::AbortUpdateRequest abort;
  abort.set_incarnation(7);
  abort.set_version(-1);
  abort.set_group_generation(6);
  v1::AbortUpdateResponse aborted;
  REQUIRE(served.stub->AbortUpdate(Served::Context().get(), abort, &aborted).ok());
  REQUIRE(begin(5) == grpc::StatusCode::ABORTED);
  REQUIRE(begin(6) == grpc::StatusCode::INVALID_ARGUMENT);
  v1::RolloutStatusResponse status;
  REQUIRE(served.stub->GetStatus(Served::Context().get(), {}, &status).ok());
  REQUIRE(status.state() == v1::SERVING);
}

TEST_CASE("The report of generation has the seconds since the report before it") {
  Served served;
  served.SetReady();
  v1::WakeRequest wake;
  wake.set_incarnation(7);
  v1::WakeResponse woken;
  REQUIRE(served.stub->Wake(Served::Context().get(), wake, &woken).ok());
  const Instant after_report = RealClock().Now();
  REQUIRE(GenerateAll(*served.engine, MixedRequests({12}, 1, 30)).size() == 1);
  const Instant before_sleep = RealClock().Now();
  v1::SleepRequest sleep;
  sleep.set_incarnation(7);
  sleep.set_level(1);
  v1::SleepResponse slept;
  REQUIRE(served.stub->Sleep(Served::Context().get(), sleep, &slept).ok());
  REQUIRE(slept.generate().phase() == "generate");
  // What is reported began before the first of these moments and ended after the second.
  REQUIRE(slept.generate().seconds() >= absl::ToDoubleSeconds(before_sleep - after_report));
}

TEST_CASE("Digests and tensor rows can be read over the wire") {
  Served served;
  served.SetReady();
  v1::GetDigestsRequest request;
  request.set_incarnation(7);
  v1::GetDigestsResponse digests;
  REQUIRE(served.stub->GetDigests(Served::Context().get(), request, &digests).ok());
  REQUIRE(digests.manifest_size() == digests.digests_size());
  REQUIRE(digests.manifest_size() == static_cast<int>(served.weights.layout.places().size()));
  v1::ReadTensorRequest read;
  read.set_incarnation(7);
  read.set_name("model.embed_tokens.weight");
  read.set_row(5);
  read.set_rows(2);
  v1::ReadTensorResponse rows;
  REQUIRE(served.stub->ReadTensor(Served::Context().get(), read, &rows).ok());
  REQUIRE(rows.dtype() == "BF16");
  REQUIRE(rows.data().size() == 2 * 64 * 2);
  read.set_name("nothing");
  REQUIRE(served.stub->ReadTensor(Served::Context().get(), read, &rows).error_code() ==
          grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("Shutdown tells the process to end") {
  Served served;
  v1::RolloutShutdownResponse response;
  REQUIRE(served.stub->Shutdown(Served::Context().get(), {}, &response).ok());
  REQUIRE(served.shut_down);
}

TEST_CASE("The pair's socket is beside the rollout's, else in a folder of the run") {
  REQUIRE(PairSocketPath("unix:/run/x/rollout-2.sock", "/elsewhere", 2) == "/run/x/pair-2.sock");
  REQUIRE(PairSocketPath("127.0.0.1:9", "/runs/a", 1) == "/runs/a/pair-1.sock");
  REQUIRE(PairSocketPath("127.0.0.1:9", "/" + std::string(120, 'r'), 1).size() < 108);
}

TEST_CASE("P7: VerifyWeights answers with the number of tensors, or names the one that changed") {
  Served served;
  served.SetReady();
  v1::VerifyWeightsRequest request;
  v1::VerifyWeightsResponse response;
  request.set_incarnation(7);
  REQUIRE(served.stub->VerifyWeights(Served::Context().get(), request, &response).ok());
  REQUIRE(response.tensors() == std::ssize(served.weights.layout.places()));
  REQUIRE(response.report().phase() == "verify");
  FindMemory(*served.engine).weights[0] ^= std::byte{1};
  const grpc::Status changed =
      served.stub->VerifyWeights(Served::Context().get(), request, &response);
  REQUIRE(changed.error_code() == grpc::StatusCode::DATA_LOSS);
  request.set_version(1);
  REQUIRE(served.stub->VerifyWeights(Served::Context().get(), request, &response).error_code() ==
          grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_CASE(
    "A rollout that is started again on a GPU waits for its weights, whatever it loaded first") {
  const TinyWeights weights({}, DType::kBFloat16);
  const std::string model = weights.dir.path().string();
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::Load(model).value();
  const auto make = [&](const char* device, const char* format, int64_t incarnation) {
    v1::RegisterResponse registration;
    v1::Config& config = *registration.mutable_config();
    config = DefaultConfig();
    config.mutable_model()->set_path(model);
    config.mutable_rollout()->set_max_model_len(64);
    config.mutable_rollout()->set_load_format(format);
    config.mutable_trainer()->set_device(device);
    registration.set_incarnation(incarnation);
    return MakeEngineOptions(registration, 0, "unix:" + model + "/worker.sock", tokenizer).value();
  };
  REQUIRE(make("cuda", "safetensors", 1).load_weights);
  REQUIRE_FALSE(make("cuda", "safetensors", 2).load_weights);
  REQUIRE(make("cpu", "safetensors", 2).load_weights);
  REQUIRE_FALSE(make("cuda", "dummy", 1).load_weights);
  // At a first start missing memory is an error at once: nobody is about to give any back.
  REQUIRE(make("cuda", "dummy", 1).wait_for_memory == absl::ZeroDuration());
  REQUIRE(make("cpu", "dummy", 2).wait_for_memory == absl::ZeroDuration());
  REQUIRE(make("cuda", "dummy", 2).wait_for_memory == absl::Seconds(600));
}

TEST_CASE("The pair's socket is in cluster.local_dir where hosts share the run directory") {
  const TinyWeights weights({}, DType::kBFloat16);
  const std::string model = weights.dir.path().string();
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::Load(model).value();
  v1::RegisterResponse registration;
  registration.set_run_dir("/shared/run");
  v1::Config& config = *registration.mutable_config();
  config = DefaultConfig();
  config.mutable_model()->set_path(model);
  config.mutable_rollout()->set_max_model_len(64);
  const auto socket = [&] {
    return MakeEngineOptions(registration, 1, "127.0.0.1:9", tokenizer)->updates.pair_socket;
  };
  REQUIRE(socket() == "/shared/run/pair-1.sock");
  config.mutable_cluster()->set_local_dir("/local/run");
  REQUIRE(socket() == "/local/run/pair-1.sock");
}

TEST_CASE("A worker takes shared memory for its weights and refuses CUDA IPC") {
  const TinyWeights weights({}, DType::kBFloat16);
  const std::string model = weights.dir.path().string();
  v1::RegisterResponse registration;
  v1::Config& config = *registration.mutable_config();
  config = DefaultConfig();
  config.mutable_model()->set_path(model);
  config.mutable_rollout()->set_max_model_len(64);
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::Load(model).value();
  for (const char* transport : {"auto", "shm", "ipc"}) {
    config.mutable_weight_sync()->set_transport(transport);
    EngineOptions options =
        MakeEngineOptions(registration, 0, "unix:" + model + "/worker.sock", tokenizer).value();
    options.load_weights = false;
    options.kv_blocks = 8;
    const absl::Status made = Engine::Create(options).status();
    if (transport != std::string("ipc")) {
      REQUIRE(made.ok());
      continue;
    }
    REQUIRE(absl::IsFailedPrecondition(made));
    REQUIRE(std::string(made.message()).find("weight_sync.transport=ipc") != std::string::npos);
  }
}

}  // namespace tandem
