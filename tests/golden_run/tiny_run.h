// A run of a tiny model in one process: the real generator, trainer, optimizer and weight transfer,
// a reward that looks at token ids, and the numbers of every step as text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/device/device.h"
#include "rollout_worker/generation/generator.h"
#include "rollout_worker/weights/update_transaction.h"
#include "tests/support/temp_dir.h"
#include "trainer_worker/training_session.h"

namespace tandem::testing {

struct TinyRunOptions {
  std::string model_type = "llama";  // see TinyModelOptions
  int threads = 1;
};

// Two mini-batches a step, so that the second one's ratio is not 1; entropy and KL terms, so that
// every part of the loss counts. TANDEM_CPU_ISA is read when a run is made.
class TinyRun {
 public:
  explicit TinyRun(const TinyRunOptions& options);

  std::string numerics_class() const { return forward_->numerics_class(); }
  // One line per mini-batch: loss terms and gradient norm as hexadecimal floats, and digests of
  // tokens, of log-probs and of the weights after the optimizer step.
  std::string Step();

 private:
  void LoadModels(const std::string& model_dir);
  void MakeGenerator();
  std::vector<Sample> Generate();
  std::string TrainOn(std::vector<Sample> samples, int mini_batch);
  void Publish();

  TempDir dir_;
  const TinyRunOptions options_;
  ModelSpec spec_;
  WeightLayout layout_;
  Ledger ledger_;
  SoloCommunicator communicator_;
  std::shared_ptr<ThreadPool> pool_;  // of everything here
  std::unique_ptr<ForwardOps> forward_;
  std::unique_ptr<BackwardOps> backward_;
  std::unique_ptr<ShardOps> shard_ops_;
  std::unique_ptr<TrainingSession> session_;
  std::unique_ptr<MemoryRegion> storage_;  // the rollout's weights
  std::unique_ptr<UpdateTransaction> receiver_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Generator> generator_;
  int64_t step_ = 0;
  int64_t version_ = 0;
};

}  // namespace tandem::testing
