// Whole runs on one GPU: the system's own programs, launched as a user does, three GRPO steps in
// which trainer and rollout take turns on the device's memory. Runs in a bundle, where the programs
// lie beside this one, and over the emulator, with nothing but the driver replaced.
// TANDEM_GPU_CHECK_MODEL names an HF checkpoint directory; without it the bundle's model is taken,
// and without that one with random weights. Needs 3 GB under TMPDIR with a model of 135M
// parameters.
#define CATCH_CONFIG_RUNNER
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/e2e/recovery.h"
#include "tests/gpu/gpu.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 3;
constexpr int kLeastTokens = 16;  // of a step: one for each sample of the smallest batch
constexpr char kDevice[] = "cuda:0";
// What the driver may keep, or another user of the device take meanwhile.
constexpr int64_t kSlackBytes = int64_t{64} << 20;

fs::path OwnFolder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

std::string Programs() {
  const fs::path own = OwnFolder();
  return fs::exists(own / "tandem-launcher") ? own : own.parent_path() / kProgramsFolder;
}

// Of SmolLM2-135M's shape, with a small vocabulary; for the emulator the least that kernels take.
TinyModelOptions RandomModel() {
  if (kEmulated) return {.num_heads = 2, .num_kv_heads = 1, .head_dim = 64};
  return {.vocab_size = 4096,
          .hidden_size = 576,
          .num_layers = 30,
          .num_heads = 9,
          .num_kv_heads = 3,
          .head_dim = 64,
          .intermediate_size = 1536};
}

// The model that the user names, or the bundle's; "" where there is none.
std::string GivenModel() {
  const char* const named = std::getenv("TANDEM_GPU_CHECK_MODEL");
  if (named != nullptr && *named != '\0') return fs::absolute(named);
  const fs::path bundled = OwnFolder().parent_path() / "model";
  return fs::exists(bundled / "config.json") ? bundled.string() : "";
}

// The directory of the model that all runs train.
const std::string& Model() {
  static const TempDir random;
  static const std::string path = [] {
    const std::string given = GivenModel();
    std::printf("model: %s\n",
                given.empty()
                    ? "random weights, made for this run; TANDEM_GPU_CHECK_MODEL names one"
                    : given.c_str());
    if (!given.empty()) return given;
    const absl::Status written = WriteTinyModel(random.path(), RandomModel());
    if (!written.ok()) throw std::runtime_error(written.ToString());
    return random.path().string();
  }();
  return path;
}

RigOptions GpuRun() {
  RigOptions options{.model_path = Model()};
  options.config = {
      {"trainer.device", "cuda"},         {"trainer.total_training_steps", std::to_string(kSteps)},
      {"trainer.save_freq", "-1"},        {"weight_sync.check", "always"},
      {"weight_sync.scramble", "always"}, {"rollout.free_cache_engine", "true"},
      {"rollout.sleep_level", "2"}};
  if (kEmulated) {
    options.config["weight_sync.bucket_mb"] = "1";
    return options;
  }
  options.config.merge(
      std::map<std::string, std::string>{{"data.train_batch_size", "8"},
                                         {"data.max_response_length", "16"},
                                         {"data.add_default_system_prompt", "false"},
                                         {"rollout.n", "8"},
                                         // Half of all texts, whatever a random model says.
                                         {"reward.terms",
                                          "[{name: format, weight: 1, args: {pattern: "
                                          "'^(?:..)*$'}}]"},
                                         {"rollout.max_num_seqs", "64"},
                                         {"rollout.max_num_batched_tokens", "2048"},
                                         {"actor.ppo_max_token_len_per_gpu", "4096"},
                                         {"actor.optim.lr", "0.00003"}});
  return options;
}

// What the device has free must come back to what it was.
class DeviceMemory {
 public:
  DeviceMemory() : cuda_(*OpenGpu()) {
    REQUIRE(cuda_->UseDevice(0).ok());
    before_ = *cuda_->FreeBytes();
  }
  void RequireBack() {
    WaitUntil("the device's memory to be as free as before the run",
              [this] { return *cuda_->FreeBytes() + kSlackBytes >= before_; });
  }

 private:
  const std::unique_ptr<CudaApi> cuda_;
  int64_t before_ = 0;
};

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

struct Run {
  Outcome outcome;
  int64_t tokens = 0;  // compared, all identical
  std::string trainer_log, rollout_log;
  std::vector<int64_t> sent;  // bytes of each version, in order
};

// How weights go to the rollout, as the trainer's log says it.
constexpr char kDirect[] = "direct", kSlots[] = "through slots";

// "version V: N tensors, B bytes went to the rollout": every B.
std::vector<int64_t> SentBytes(const std::string& log) {
  std::vector<int64_t> sent;
  const std::regex line(R"(version \d+: \d+ tensors, (\d+) bytes went to the rollout)");
  for (std::sregex_iterator at(log.begin(), log.end(), line), end; at != end; ++at) {
    sent.push_back(std::stoll((*at)[1]));
  }
  return sent;
}

// What a run of `pairs` that has ended with exit code 0 has to show for it; `way` is that of every
// sync.
Run RequireWhole(const ClusterRig& rig, int pairs, const char* way, const std::string& console) {
  REQUIRE(rig.LeftBehind() == "");
  Run run{.outcome = OutcomeOf(rig, kSteps),
          .trainer_log = rig.Log("trainer"),
          .rollout_log = rig.Log("rollout")};
  run.sent = SentBytes(run.trainer_log);
  RequireLearned(run.outcome, kSteps);
  run.tokens = RequireIdentical(console, kSteps, kLeastTokens);
  for (const auto& [step, metrics] : run.outcome.metrics) {
    INFO("step " << step << ": " << metrics.dump());
    REQUIRE(metrics.at("actor/loss").is_number());
    REQUIRE(std::isfinite(metrics.at("actor/loss").get<double>()));
    REQUIRE(std::isfinite(metrics.at("actor/grad_norm").get<double>()));
  }
  // Version 0 and one of each step.
  REQUIRE(Count(console, fmt::format(" tensors equal on each of {} rollouts", pairs)) ==
          kSteps + 1);
  REQUIRE(Count(run.trainer_log, std::string(" buckets, ") + way) == kSteps + 1);
  for (const std::string& log : {run.trainer_log, run.rollout_log}) {
    REQUIRE(log.find("cuda-sm") != std::string::npos);
  }
  return run;
}

void Prepare(ClusterRig& rig, int pairs) {
  rig.UsePrograms(Programs());
  rig.SetPairs(pairs);
  if (kEmulated) rig.SetEnv("TANDEM_EMULATED_CUDA_MIB", "1024");
}

// `refused`: a call that the emulated system does not permit.
Run Launch(const RigOptions& options, const char* way, const char* refused = nullptr) {
  DeviceMemory memory;
  ClusterRig rig(options);
  Prepare(rig, 1);
  if (refused != nullptr) rig.SetEnv("TANDEM_EMULATED_CUDA_REFUSED", refused);
  const int code = rig.Launch({"--bin-dir", Programs()}).Wait();
  INFO(rig.Log("controller") << rig.Log("trainer") << rig.Log("rollout") << rig.Log("launcher"));
  REQUIRE(code == 0);
  Run run = RequireWhole(rig, 1, way, rig.Log("launcher"));
  memory.RequireBack();
  return run;
}

std::string MetricsText(const Outcome& outcome) {
  std::string text;
  for (const auto& [step, metrics] : outcome.metrics) {
    text += fmt::format("step {}: {}\n", step, metrics.dump());
  }
  return text;
}

// One pair that sleeps at level 2; made once.
const Run& OnePair() {
  static const Run run = Launch(GpuRun(), kDirect);
  return run;
}

}  // namespace

TEST_CASE("three steps of one pair on a GPU: identical log-probs, equal weights, all given back",
          "[one]") {
  const Run& run = OnePair();
  REQUIRE(Count(run.rollout_log, ": released ") >= kSteps);
  std::printf("figure grpo_identical_tokens %lld tokens\n", static_cast<long long>(run.tokens));
}

TEST_CASE("weights that cross through pinned memory, and memory that is kept, change no bit",
          "[pinned]") {
  const Run& first = OnePair();
  RigOptions other = GpuRun();
  other.config["weight_sync.transport"] = "shm";
  other.config["rollout.free_cache_engine"] = "false";
  const Run second = Launch(other, kSlots);
  REQUIRE(second.outcome.weights == first.outcome.weights);
  REQUIRE(second.outcome.metrics == first.outcome.metrics);
}

TEST_CASE(
    "adapters merged on the GPU: identical log-probs, equal weights, and the base as reference",
    "[lora]") {
  RigOptions options = GpuRun();
  options.config["model.lora.rank"] = "8";
  options.config["model.lora.alpha"] = "16";
  options.config["actor.optim.lr"] = "0.001";
  options.config["actor.use_kl_loss"] = "true";
  const Run run = Launch(options, kSlots);
  INFO(MetricsText(run.outcome));
  // B begins at zero.
  REQUIRE(run.outcome.metrics.at(1).at("actor/kl_loss").get<double>() == 0.0);
  REQUIRE(run.outcome.metrics.at(kSteps).at("actor/kl_loss").get<double>() > 0.0);
  std::printf("figure lora_identical_tokens %lld tokens\n", static_cast<long long>(run.tokens));
}

TEST_CASE("a rollout that may not open its trainer's memory gets the same weights through slots",
          "[refused]") {
  if (!kEmulated) {
    SUCCEED("a driver refuses nothing on demand");
    return;
  }
  RigOptions options = GpuRun();
  options.config["actor.fsdp_config.param_offload"] = "true";
  const Run direct = Launch(options, kDirect), slots = Launch(options, kSlots, "OpenMemory");
  REQUIRE(slots.outcome.weights == direct.outcome.weights);
  REQUIRE(slots.outcome.metrics == direct.outcome.metrics);
}

TEST_CASE("adapters beside the base cross alone after sleep of level 1, and stay identical",
          "[beside]") {
  RigOptions options = GpuRun();
  options.config["rollout.sleep_level"] = "1";
  options.config.merge(std::map<std::string, std::string>{{"model.lora.rank", "4"},
                                                          {"model.lora.alpha", "8"},
                                                          {"model.lora.merge", "false"},
                                                          {"actor.use_kl_loss", "true"}});
  options.config["actor.optim.lr"] = "0.01";
  const Run run = Launch(options, kSlots);
  // Of all versions the first one alone has the base.
  REQUIRE(run.sent.size() == kSteps + 1);
  for (size_t version = 1; version < run.sent.size(); ++version) {
    REQUIRE(run.sent[version] < run.sent[0] / 2);
  }
  INFO(MetricsText(run.outcome));
  // The reference is the base: what was trained has left it.
  REQUIRE(run.outcome.metrics.at(1).at("actor/kl_loss").get<double>() == 0.0);
  REQUIRE(run.outcome.metrics.at(kSteps).at("actor/kl_loss").get<double>() > 0.0);
  std::printf("figure beside_identical_tokens %lld tokens\n", static_cast<long long>(run.tokens));
}

TEST_CASE("two pairs on one GPU exchange through pinned memory and stay identical", "[two]") {
  DeviceMemory memory;
  ClusterRig rig(GpuRun());
  Prepare(rig, 2);
  // The launcher gives every pair a GPU of its own.
  rig.UseDevice(kDevice);
  TestProcess& controller = rig.StartController();
  std::vector<TestProcess*> workers;
  for (const int rank : {0, 1}) {
    workers.push_back(&rig.StartTrainer(rank));
    workers.push_back(&rig.StartRollout(rank));
  }
  const int code = controller.Wait();
  INFO(rig.Log("rollout", 1) << rig.Log("rollout") << rig.Log("trainer", 1) << rig.Log("trainer")
                             << rig.Log("controller"));
  REQUIRE(code == 0);
  for (TestProcess* worker : workers) REQUIRE(worker->Wait() == 0);
  const Run run = RequireWhole(rig, 2, kSlots, rig.Log("controller"));
  REQUIRE(run.trainer_log.find("go through pinned host memory") != std::string::npos);
  memory.RequireBack();
}

namespace {

// Why one of the programs does not start, "" where all do.
std::string Obstacle() {
  const TempDir dir;
  for (const char* const name :
       {"tandem-launcher", "tandem-controller", "tandem-trainer", "tandem-rollout"}) {
    const std::string program = Programs() + "/" + name;
    if (!fs::exists(program)) return program + " is not there";
    TestProcess help({.argv = {program, "--help"}, .output = dir.path() / name});
    if (help.Wait() != 0) return std::string(name) + " does not start: " + help.Output();
  }
  return "";
}

}  // namespace

int Main(int argc, char** argv) {
  const auto gpu = OpenGpu();
  if (!gpu.ok()) {
    std::printf("no GPU: %s\n", std::string(gpu.status().message()).c_str());
    return kNoGpu;
  }
  const std::string why = Obstacle();
  return why.empty() ? Catch::Session().run(argc, argv) : Skipped(why);
}

}  // namespace tandem::testing

int main(int argc, char** argv) { return tandem::testing::Main(argc, argv); }
