// The trainer over gRPC, against a controller that lives in the test.
#include "trainer_worker/trainer_service.h"

#include <absl/strings/match.h>
#include <fmt/ranges.h>

#include "common/config/config.h"
#include "common/config/schema.h"
#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/net/server.h"
#include "common/net/worker_codec.h"
#include "tandem/v1/config.pb.h"
#include "tandem/v1/controller.grpc.pb.h"
#include "tandem/v1/trainer.grpc.pb.h"
#include "tests/support/patience.h"
#include "tests/support/text.h"
#include "tests/trainer_worker/trainer_ranks.h"
#include "trainer_worker/engine_thread.h"
#include "trainer_worker/grpc_sample_stream.h"
#include "trainer_worker/worker_options.h"

namespace tandem {
namespace {

using namespace tandem::testing;

// Streams the samples one per message; keeps the log-probs that come back.
class SampleController final : public v1::ClusterService::Service {
 public:
  grpc::Status StreamSamples(grpc::ServerContext*,
                             const v1::StreamSamplesRequest* request,
                             grpc::ServerWriter<v1::StreamSamplesResponse>* writer) override {
    if (request->step() != 1 || request->worker().rank() != 0) {
      return {grpc::StatusCode::NOT_FOUND, "no such batch"};
    }
    for (const Sample& sample : samples) {
      v1::StreamSamplesResponse response;
      *response.add_samples() = ToProto(sample);
      writer->Write(response);
    }
    return grpc::Status::OK;
  }
  grpc::Status PutLogProbs(grpc::ServerContext*,
                           grpc::ServerReader<v1::PutLogProbsRequest>* reader,
                           v1::PutLogProbsResponse*) override {
    v1::PutLogProbsRequest request;
    while (reader->Read(&request)) {
      policy = request.policy();
      for (const auto& item : request.items()) {
        log_probs[item.sample_id()].assign(item.log_probs().begin(), item.log_probs().end());
      }
    }
    return grpc::Status::OK;
  }

  std::vector<Sample> samples;
  std::string policy;
  std::map<uint64_t, std::vector<float>> log_probs;
};

struct Job {
  TempDir dir;
  SampleController controller;
  std::unique_ptr<RpcServer> controller_server;
  std::unique_ptr<SampleStream> stream;
  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<EngineThread> engine;
  int shutdowns = 0;
  std::unique_ptr<TrainerService> service =
      TrainerService::Create([this] { ++shutdowns; }, [](const absl::Status&) {});
  std::unique_ptr<RpcServer> server;
  std::unique_ptr<v1::TrainerService::Stub> stub;

  Job() {
    controller.samples = RandomSamples(3, 1);
    controller_server = Start("controller.sock", &controller);
    server = Start("trainer.sock", service->service());
    stub = v1::TrainerService::NewStub(*MakeChannel(server->address()));
  }
  ~Job() {
    if (engine != nullptr) engine->Stop();
  }
  std::unique_ptr<RpcServer> Start(const std::string& name, grpc::Service* what) {
    auto started = RpcServer::Start("unix:" + (dir.path() / name).string(), {what}, {});
    REQUIRE(started.ok());
    return *std::move(started);
  }
  void MakeReady() {
    v1::RegisterResponse registration;
    *registration.mutable_config() = DefaultConfig();
    const std::string model = (dir.path() / "model").string();
    REQUIRE(WriteTinyModel(model).ok());
    registration.mutable_config()->mutable_model()->set_path(model);
    registration.set_vocab_limit(TinyTokenizerSize());
    registration.set_compute_threads(1);
    const auto options = MakeTrainerOptions(registration, 0);
    REQUIRE(options.ok());
    v1::WorkerId worker;
    worker.set_role(v1::ROLE_TRAINER);
    worker.set_incarnation(7);
    stream = MakeGrpcSampleStream([this] { return MakeChannel(controller_server->address()); },
                                  worker, testing::kPatience);
    auto made = Trainer::Create(*options, stream.get(), nullptr);
    REQUIRE(made.ok());
    trainer = *std::move(made);
    engine = std::make_unique<EngineThread>("trainer");
    service->SetReady(trainer.get(), engine.get(), worker,
                      {.sockets = {dir.path()}, .loaded = {dir.path()}, .saved = {dir.path()}});
  }

  template <typename Response, typename Request>
  absl::Status Call(grpc::Status (v1::TrainerService::Stub::*method)(grpc::ClientContext*,
                                                                     const Request&,
                                                                     Response*),
                    const Request& request,
                    Response* response) {
    grpc::ClientContext context;
    SetDeadline(context, testing::kPatience);
    return FromGrpcStatus((stub.get()->*method)(&context, request, response));
  }
  absl::Status Reset(int64_t incarnation = 7, int64_t generation = 2) {
    v1::TrainerResetRequest request;
    request.set_incarnation(incarnation);
    request.set_generation(generation);
    request.set_world_size(1);
    request.set_rendezvous((dir.path() / "group.sock").string());
    v1::TrainerResetResponse response;
    return Call(&v1::TrainerService::Stub::Reset, request, &response);
  }
};

TEST_CASE("The stream of samples connects anew after a call that nobody answered",
          "[trainer_service]") {
  const TempDir dir;
  const std::string address = "unix:" + (dir.path() / "c.sock").string();
  int connections = 0;
  const auto stream = MakeGrpcSampleStream(
      [&] {
        ++connections;
        return MakeChannel(address);
      },
      v1::WorkerId(), testing::kPatience);
  REQUIRE(absl::IsUnavailable(stream->Pull(1, 0).status()));
  SampleController controller;
  controller.samples = RandomSamples(3, 1);
  const auto server = *RpcServer::Start(address, {&controller}, {});
  REQUIRE(stream->Pull(1, 0)->size() == 3);
  REQUIRE(stream->Pull(1, 0)->size() == 3);
  REQUIRE(connections == 2);
}

TEST_CASE("A trainer that is starting is unavailable", "[trainer][service]") {
  Job job;
  REQUIRE(job.Reset().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("A call for another incarnation is aborted and names the worker", "[trainer][service]") {
  Job job;
  job.MakeReady();
  const absl::Status status = job.Reset(6);
  REQUIRE(status.code() == absl::StatusCode::kAborted);
  const auto info = GetErrorInfo(status);
  REQUIRE(info.has_value());
  REQUIRE(info->worker().incarnation() == 7);
}

TEST_CASE("A reset names all members of a group or none", "[trainer][service]") {
  Job job;
  job.MakeReady();
  v1::TrainerResetRequest request;
  request.set_incarnation(7);
  request.set_generation(2);
  request.set_world_size(1);
  request.set_rendezvous((job.dir.path() / "group.sock").string());
  v1::TrainerMember member;
  member.set_boot_id("boot");
  member.set_node("a");
  *request.add_members() = member;
  *request.add_members() = member;
  v1::TrainerResetResponse response;
  const absl::Status many = job.Call(&v1::TrainerService::Stub::Reset, request, &response);
  REQUIRE(absl::IsInvalidArgument(many));
  REQUIRE(testing::Says(many, "2 members, and its world size is 1"));
  request.mutable_members()->RemoveLast();
  REQUIRE(job.Call(&v1::TrainerService::Stub::Reset, request, &response).ok());
}

TEST_CASE("Paths in calls stay inside the folders of the run", "[trainer][service]") {
  Job job;
  job.MakeReady();
  REQUIRE(job.Reset().ok());
  const std::string elsewhere = testing::TempDir().path();  // gone by now
  std::filesystem::create_directories(elsewhere);
  std::filesystem::create_symlink(elsewhere, job.dir.path() / "out");
  const auto save = [&](const std::string& directory) {
    v1::SaveStateRequest request;
    request.set_incarnation(7);
    request.set_generation(2);
    request.set_directory(directory);
    v1::SaveStateResponse response;
    return job.Call(&v1::TrainerService::Stub::SaveState, request, &response);
  };
  REQUIRE(absl::IsInvalidArgument(save(elsewhere)));
  REQUIRE(absl::IsPermissionDenied(save(job.dir.path() / "out" / "saved")));
  REQUIRE(std::filesystem::is_empty(elsewhere));
  const auto reset = [&](const std::string& rendezvous, const std::string& checkpoint) {
    v1::TrainerResetRequest request;
    request.set_incarnation(7);
    request.set_generation(3);
    request.set_world_size(1);
    request.set_rendezvous(rendezvous);
    request.set_checkpoint_dir(checkpoint);
    v1::TrainerResetResponse response;
    return job.Call(&v1::TrainerService::Stub::Reset, request, &response);
  };
  const std::string socket = job.dir.path() / "group.sock";
  REQUIRE(absl::IsInvalidArgument(reset(elsewhere + "/group.sock", "")));
  REQUIRE(absl::IsPermissionDenied(reset(job.dir.path() / "out" / "group.sock", "")));
  REQUIRE(absl::IsInvalidArgument(reset(socket, "/etc")));
  REQUIRE(absl::IsInvalidArgument(reset(socket, job.dir.path() / ".." / "etc")));
  std::filesystem::remove_all(elsewhere);
  // What was refused has changed nothing: the group of before goes on.
  std::filesystem::create_directories(job.dir.path() / "saved");
  REQUIRE(save(job.dir.path() / "saved").ok());
}

TEST_CASE("Numbers of a Reset that nothing could follow are refused", "[trainer][service]") {
  Job job;
  job.MakeReady();
  REQUIRE(job.Reset().ok());
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  const auto reset = [&](int64_t generation, int64_t version, int64_t step) {
    v1::TrainerResetRequest request;
    request.set_incarnation(7);
    request.set_generation(generation);
    request.set_world_size(1);
    request.set_version(version);
    request.set_step(step);
    v1::TrainerResetResponse response;
    return job.Call(&v1::TrainerService::Stub::Reset, request, &response);
  };
  for (const int64_t wrong : {kHighest, int64_t{-1}}) {
    REQUIRE(absl::IsInvalidArgument(reset(wrong, 0, 0)));
    REQUIRE(absl::IsInvalidArgument(reset(3, wrong, 0)));
    REQUIRE(absl::IsInvalidArgument(reset(3, 0, wrong)));
  }
  REQUIRE(
      absl::StrContains(reset(kHighest, 0, 0).message(),
                        "the generation of Reset is 9223372036854775807, and must be from 0 to"));
  // The group of before goes on: it was not interrupted for a generation that cannot come.
  REQUIRE(job.Reset(7, 3).ok());
}

TEST_CASE("A step over gRPC trains on the controller's samples", "[trainer][service]") {
  Job job;
  job.MakeReady();
  REQUIRE(job.Reset().ok());
  v1::ForwardBackwardRequest train;
  train.set_incarnation(7);
  train.set_generation(2);
  train.set_step(1);
  train.set_global_tokens(static_cast<double>(TrainedTokens(job.controller.samples)));
  train.set_global_samples(3);
  train.set_compare_log_probs(true);
  v1::ForwardBackwardResponse trained;
  REQUIRE(job.Call(&v1::TrainerService::Stub::ForwardBackward, train, &trained).ok());
  const v1::LogProbComparison& comparison = trained.comparison();
  REQUIRE(comparison.compared_tokens() == TrainedTokens(job.controller.samples));
  REQUIRE(comparison.identical_tokens() < comparison.compared_tokens());
  REQUIRE(comparison.mismatches_size() == 5);
  REQUIRE(trained.metrics().count("actor/pg_loss") == 1);
  REQUIRE(trained.report().phase() == "train");
  v1::OptimizerStepRequest step;
  step.set_incarnation(7);
  step.set_generation(2);
  step.set_version(1);
  v1::OptimizerStepResponse stepped;
  REQUIRE(job.Call(&v1::TrainerService::Stub::OptimizerStep, step, &stepped).ok());
  REQUIRE(stepped.grad_norm() > 0);
  v1::TrainerStatusResponse status;
  REQUIRE(job.Call(&v1::TrainerService::Stub::GetStatus, {}, &status).ok());
  REQUIRE(status.version() == 1);
  REQUIRE(status.phase() == "idle");
  REQUIRE(status.ledger().entries_size() > 0);
  train.set_version(1);
  train.set_step(2);
  const absl::Status missing =
      job.Call(&v1::TrainerService::Stub::ForwardBackward, train, &trained);
  REQUIRE(missing.code() == absl::StatusCode::kNotFound);
  REQUIRE(GetErrorInfo(missing)->last_action() == "ForwardBackward of step 2, mini-batch 0");
}

TEST_CASE("A controller that was replaced is not heard", "[trainer][service]") {
  Job job;
  job.MakeReady();
  REQUIRE(job.Reset().ok());
  const absl::Status reset = job.Reset(7, 1);
  REQUIRE(reset.code() == absl::StatusCode::kAborted);
  v1::OptimizerStepRequest step;
  step.set_incarnation(7);
  step.set_generation(1);
  step.set_version(1);
  v1::OptimizerStepResponse stepped;
  const absl::Status stale = job.Call(&v1::TrainerService::Stub::OptimizerStep, step, &stepped);
  REQUIRE(stale.code() == absl::StatusCode::kAborted);
  REQUIRE(std::string(stale.message())
              .find("refuses a call of generation 1, which is over: it is in generation 2, the "
                    "current one") != std::string::npos);
  step.set_generation(3);
  const absl::Status early = job.Call(&v1::TrainerService::Stub::OptimizerStep, step, &stepped);
  REQUIRE(early.code() == absl::StatusCode::kAborted);
  REQUIRE(std::string(early.message())
              .find("of generation 3, the current one: it is still in generation 2") !=
          std::string::npos);
  // The state of the newer generation is untouched.
  v1::TrainerStatusResponse status;
  REQUIRE(job.Call(&v1::TrainerService::Stub::GetStatus, {}, &status).ok());
  REQUIRE(status.version() == 0);
}

TEST_CASE("Log-probs go back to the controller, one per response token", "[trainer][service]") {
  Job job;
  job.MakeReady();
  REQUIRE(job.Reset().ok());
  v1::ComputeLogProbsRequest request;
  request.set_incarnation(7);
  request.set_generation(2);
  request.set_step(1);
  request.set_policy(v1::ComputeLogProbsRequest::CURRENT);
  v1::ComputeLogProbsResponse response;
  REQUIRE(job.Call(&v1::TrainerService::Stub::ComputeLogProbs, request, &response).ok());
  REQUIRE(job.controller.policy == "current");
  REQUIRE(job.controller.log_probs.size() == 3);
  for (const Sample& sample : job.controller.samples) {
    const std::vector<float>& got = job.controller.log_probs.at(sample.sample_id);
    REQUIRE(got.size() == static_cast<size_t>(sample.response_tokens()));
    REQUIRE(got[0] < 0);
  }
  REQUIRE(response.comparison().compared_tokens() == TrainedTokens(job.controller.samples));
}

TEST_CASE("Log-probs that are only compared go to the controller where they differ",
          "[trainer][service]") {
  Job job;
  job.MakeReady();
  REQUIRE(job.Reset().ok());
  v1::ComputeLogProbsRequest request;
  request.set_incarnation(7);
  request.set_generation(2);
  request.set_step(1);
  request.set_policy(v1::ComputeLogProbsRequest::COMPARED);
  v1::ComputeLogProbsResponse response;
  REQUIRE(job.Call(&v1::TrainerService::Stub::ComputeLogProbs, request, &response).ok());
  const int64_t tokens = TrainedTokens(job.controller.samples);
  REQUIRE(response.comparison().compared_tokens() == tokens);
  REQUIRE(response.comparison().identical_tokens() < tokens);
  REQUIRE(response.report().phase() == "compare");
  REQUIRE(job.controller.policy == "training");
  for (Sample& sample : job.controller.samples) {
    sample.log_probs = job.controller.log_probs.at(sample.sample_id);
  }
  job.controller.policy = "none";
  REQUIRE(job.Call(&v1::TrainerService::Stub::ComputeLogProbs, request, &response).ok());
  REQUIRE(response.comparison().identical_tokens() == tokens);
  REQUIRE(response.comparison().compared_tokens() == tokens);
  REQUIRE(job.controller.policy == "none");
}

TEST_CASE("Shutdown is passed on", "[trainer][service]") {
  Job job;
  v1::TrainerShutdownResponse response;
  REQUIRE(job.Call(&v1::TrainerService::Stub::Shutdown, {}, &response).ok());
  REQUIRE(job.shutdowns == 1);
}

TEST_CASE("The choices of the policy loss are the losses that there are", "[trainer][options]") {
  const KeySpec* spec = FindKey("actor.policy_loss.loss_mode");
  REQUIRE(spec != nullptr);
  std::vector<std::string> choices(spec->info.choices().begin(), spec->info.choices().end());
  std::sort(choices.begin(), choices.end());
  const absl::Status unknown = CheckPolicyLossOptions({.loss_mode = "?"});
  REQUIRE(unknown.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(unknown.message())
              .ends_with(fmt::format("use one of {}", fmt::join(choices, ", "))));
}

TEST_CASE("Options of the loss follow the configuration", "[trainer][options]") {
  v1::RegisterResponse registration;
  v1::Config& config = *registration.mutable_config();
  config = DefaultConfig();
  config.mutable_data()->set_max_response_length(321);
  auto options = MakeTrainerOptions(registration, 0);
  REQUIRE(options.ok());
  // What the library assumes is what the configuration does.
  const PolicyLossOptions defaults;
  REQUIRE(options->loss.loss_mode == defaults.loss_mode);
  REQUIRE(options->loss.tau_neg == defaults.tau_neg);
  REQUIRE(options->loss.ppo_kl_coef == defaults.ppo_kl_coef);
  REQUIRE(options->loss.clip_cov_ratio == defaults.clip_cov_ratio);
  REQUIRE_FALSE(options->loss.dro_beta.has_value());
  REQUIRE_FALSE(options->loss.bypass.has_value());
  REQUIRE(options->loss_scale_factor == 321);
  v1::Actor& actor = *config.mutable_actor();
  actor.set_loss_scale_factor(55);
  actor.set_tau_pos(1.5);
  actor.set_tau_neg(2.5);
  v1::PolicyLoss& loss = *actor.mutable_policy_loss();
  loss.set_loss_mode("dro");
  loss.set_dro_beta(0.25);
  loss.set_clip_cov_ratio(0.01);
  loss.set_clip_cov_lb(0.5);
  loss.set_clip_cov_ub(7);
  loss.set_kl_cov_ratio(0.02);
  loss.set_ppo_kl_coef(0.75);
  config.mutable_trainer()->set_seed(12);
  options = MakeTrainerOptions(registration, 0);
  REQUIRE(options->loss_scale_factor == 55);
  REQUIRE(options->seed == 12);
  REQUIRE(options->loss.loss_mode == "dro");
  REQUIRE(options->loss.tau_pos == 1.5);
  REQUIRE(options->loss.tau_neg == 2.5);
  REQUIRE(options->loss.dro_beta == 0.25);
  REQUIRE(options->loss.clip_cov_ratio == 0.01);
  REQUIRE(options->loss.clip_cov_lb == 0.5);
  REQUIRE(options->loss.clip_cov_ub == 7);
  REQUIRE(options->loss.kl_cov_ratio == 0.02);
  REQUIRE(options->loss.ppo_kl_coef == 0.75);
}

TEST_CASE("The correction of bypass mode is the configuration's, and the trainers' own",
          "[trainer][options]") {
  v1::RegisterResponse registration;
  v1::Config& config = *registration.mutable_config();
  config = DefaultConfig();
  v1::RolloutCorrection& keys = *config.mutable_algorithm()->mutable_rollout_correction();
  keys.set_rollout_is("sequence");
  keys.set_rollout_is_threshold("0.5_1.5");
  keys.set_rollout_rs("token_k1");
  keys.set_rollout_rs_threshold("1.1");
  keys.set_loss_type("reinforce");
  // Without bypass mode the controller corrects.
  REQUIRE_FALSE(MakeTrainerOptions(registration, 0)->loss.bypass.has_value());
  keys.set_bypass_mode(true);
  const auto bypass = MakeTrainerOptions(registration, 0)->loss.bypass;
  REQUIRE(bypass.has_value());
  REQUIRE(bypass->loss_type == "reinforce");
  REQUIRE(bypass->correction.rollout_is == "sequence");
  REQUIRE(bypass->correction.rollout_is_threshold == "0.5_1.5");
  REQUIRE(bypass->correction.rollout_rs == "token_k1");
  REQUIRE(bypass->correction.rollout_rs_threshold == "1.1");
}

TEST_CASE("The learning rate's schedule follows the configuration", "[trainer][options]") {
  v1::RegisterResponse registration;
  v1::Config& config = *registration.mutable_config();
  config = DefaultConfig();
  v1::Optim& optim = *config.mutable_actor()->mutable_optim();
  optim.set_lr_scheduler_type("wsd");
  // Nobody has said how many steps there are.
  REQUIRE(absl::IsInvalidArgument(MakeTrainerOptions(registration, 0).status()));
  optim.set_total_training_steps(60);
  optim.set_lr_warmup_steps_ratio(0.25);
  optim.set_min_lr_ratio(0.125);
  optim.set_num_cycles(1.5);
  optim.set_stable_ratio(0.5);
  const auto schedule = [&] {
    return MakeTrainerOptions(registration, 0).value().session.optimizer.schedule;
  };
  REQUIRE(schedule().type == "wsd");
  REQUIRE(schedule().total_steps == 60);
  REQUIRE(schedule().warmup_steps == 15);
  REQUIRE(schedule().min_lr_ratio == 0.125);
  REQUIRE(schedule().num_cycles == 1.5);
  REQUIRE(schedule().stable_ratio == 0.5);
  optim.set_lr_warmup_steps(-1);
  REQUIRE(schedule().warmup_steps == 15);
  optim.set_lr_warmup_steps(4);
  REQUIRE(schedule().warmup_steps == 4);
}

TEST_CASE("Options follow the configuration", "[trainer][options]") {
  v1::RegisterResponse registration;
  v1::Config& config = *registration.mutable_config();
  config = DefaultConfig();
  config.mutable_model()->set_compute_dtype("float32");
  config.mutable_model()->set_enable_gradient_checkpointing("true");
  config.mutable_actor()->set_use_kl_loss(true);
  config.mutable_actor()->set_old_log_prob("recompute");
  v1::FsdpConfig& fsdp = *config.mutable_actor()->mutable_fsdp_config();
  fsdp.set_reshard_after_forward("false");
  fsdp.set_forward_prefetch(false);
  config.mutable_ref()->set_offload(true);
  config.mutable_actor()->mutable_checkpoint()->clear_save_contents();
  config.mutable_rollout()->set_max_model_len(77);
  auto options = MakeTrainerOptions(registration, 3);
  REQUIRE(options.ok());
  REQUIRE(options->rank == 3);
  REQUIRE(options->dtype == DType::kFloat32);
  REQUIRE(options->session.recompute == Recompute::kAlways);
  REQUIRE(options->session.reshard == Reshard::kNever);
  REQUIRE_FALSE(options->session.prefetch);
  REQUIRE(options->session.offload_reference);
  REQUIRE(options->session.max_sequence_tokens == 77);
  REQUIRE(options->keep_reference);
  REQUIRE(options->recompute_old_log_probs);
  REQUIRE_FALSE(options->single_channel);
  config.mutable_cluster()->set_nccl_single_channel(true);
  REQUIRE(MakeTrainerOptions(registration, 3)->single_channel);
  REQUIRE_FALSE(options->save_optimizer);
  REQUIRE_FALSE(options->save_hf_model);
  // What may be held follows from the memory of the device, the host's or a GPU's.
  config.mutable_rollout()->set_gpu_memory_utilization(0.5);
  constexpr int64_t kGpu = int64_t{80} << 30;
  options = MakeTrainerOptions(registration, 3, kGpu);
  REQUIRE(options->session.device_bytes == kGpu);
  REQUIRE(options->session.kept_bytes == TrainerKeptBytes(kGpu, 0.5));
  options = MakeTrainerOptions(registration, 3);
  REQUIRE(options->session.kept_bytes == TrainerKeptBytes(options->session.device_bytes, 0.5));
  REQUIRE_FALSE(options->session.has_own_device);
  config.mutable_cluster()->set_hybrid_engine(false);
  REQUIRE(MakeTrainerOptions(registration, 3)->session.has_own_device);
  config.mutable_cluster()->set_hybrid_engine(true);
  config.mutable_actor()->mutable_checkpoint()->add_save_contents("optimizer");
  options = MakeTrainerOptions(registration, 3);
  REQUIRE(options->save_optimizer);
  REQUIRE_FALSE(options->save_hf_model);
  fsdp.set_reshard_after_forward("sometimes");
  options = MakeTrainerOptions(registration, 3);
  REQUIRE(options.status().code() == absl::StatusCode::kInvalidArgument);
  fsdp.set_reshard_after_forward("true");
  options = MakeTrainerOptions(registration, 3);
  REQUIRE(options->session.reshard == Reshard::kAlways);
  config.mutable_model()->set_enable_gradient_checkpointing("maybe");
  options = MakeTrainerOptions(registration, 3);
  REQUIRE(options.status().code() == absl::StatusCode::kInvalidArgument);
  config.mutable_model()->set_enable_gradient_checkpointing("true");
  for (const char* transport : {"auto", "shm", "ipc"}) {
    config.mutable_weight_sync()->set_transport(transport);
    const TrainerOptions made = MakeTrainerOptions(registration, 3).value();
    const absl::Status created = Trainer::Create(made, nullptr, nullptr).status();
    REQUIRE(created.ok() == (transport != std::string("ipc")));
  }
}

}  // namespace
}  // namespace tandem
