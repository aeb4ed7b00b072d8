#include "rollout_worker/worker_options.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/device/device_memory.h"
#include "common/lora/lora_spec.h"
#include "common/net/protocol.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Whether a rollout on a GPU restarts, perhaps while its trainer runs a pass. Until the pass ends
// there is little free memory, and none for weights before the controller wakes the rollout for a
// sync.
bool MayRestartDuringPass(const v1::RegisterResponse& registration) {
  return registration.config().trainer().device() == "cuda" && registration.incarnation() > 1;
}

}  // namespace

std::string PairSocketPath(const std::string& listen, const std::string& local_dir, int rank) {
  std::string directory = UnixSocketDirectory(listen);
  if (directory.empty()) directory = local_dir;
  const std::string path =
      fs::absolute(fmt::format("{}/pair-{}.sock", directory, rank)).lexically_normal().string();
  if (!directory.empty() && path.size() <= kLongestSocketPath) return path;
  return fmt::format("{}/tandem-pair-{}-{}.sock", fs::temp_directory_path().string(), rank,
                     getpid());
}

absl::StatusOr<EngineOptions> MakeEngineOptions(const v1::RegisterResponse& registration,
                                                int rank,
                                                const std::string& listen,
                                                std::shared_ptr<const Tokenizer> tokenizer) {
  const v1::Config& config = registration.config();
  const v1::Rollout& rollout = config.rollout();
  if (!registration.tokenizer_digest().empty() &&
      registration.tokenizer_digest() != tokenizer->digest()) {
    return FailedPrecondition(
        "the tokenizer in {} has digest {} here and {} at the controller: both must read the same "
        "files",
        config.model().path(), tokenizer->digest(), registration.tokenizer_digest());
  }
  EngineOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.spec, LoadModelSpec(config.model().path()));
  if (rollout.max_model_len() > options.spec.max_position) {
    return InvalidArgument(
        "rollout.max_model_len={} is more than the {} positions of the model in {}; lower it, or "
        "data.max_prompt_length and data.max_response_length",
        rollout.max_model_len(), options.spec.max_position, config.model().path());
  }
  TANDEM_ASSIGN_OR_RETURN(options.spec, WithAdapters(options.spec, LoraOptionsOf(config)));
  options.model_dir = config.model().path();
  const bool restarted = MayRestartDuringPass(registration);
  options.load_weights = !restarted && rollout.load_format() != "dummy";
  // A trainer's pass lasts no longer than the RPC that runs it.
  if (restarted) options.wait_for_memory = absl::Seconds(config.cluster().rpc_timeout_seconds());
  options.dtype = config.model().compute_dtype() == "float32" ? DType::kFloat32 : DType::kBFloat16;
  options.threads = std::max<int>(1, registration.compute_threads());
  options.memory_utilization = rollout.gpu_memory_utilization();
  options.device_bytes = CpuDeviceMemoryBytes(TopologyOf(config).devices_per_host());
  options.generator.scheduler = {rollout.max_num_seqs(), rollout.max_num_batched_tokens(),
                                 rollout.enable_prefix_caching()};
  options.generator.max_model_len = rollout.max_model_len();
  options.generator.log_probs = rollout.calculate_log_probs();
  options.generator.vocab_limit =
      registration.vocab_limit() > 0 ? registration.vocab_limit() : tokenizer->vocab_size();
  options.generator.eos_token_ids = {registration.stop_token_ids().begin(),
                                     registration.stop_token_ids().end()};
  if (options.generator.eos_token_ids.empty()) {
    options.generator.eos_token_ids = tokenizer->eos_token_ids();
  }
  options.generator.tokenizer = std::move(tokenizer);
  options.transport = config.weight_sync().transport();
  // A run directory that hosts share may be on a file system without sockets.
  const bool has_local_dir = !config.cluster().local_dir().empty();
  options.updates.pair_socket = PairSocketPath(
      listen, has_local_dir ? config.cluster().local_dir() : registration.run_dir(), rank);
  return options;
}

}  // namespace tandem
