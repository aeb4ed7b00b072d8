// The adapters that training starts with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/comm/communicator.h"
#include "common/formats/peft/peft_adapter.h"
#include "common/formats/training_state.h"
#include "trainer_worker/trained_weights/lora_weights.h"

namespace tandem {

// `count` elements of A [rank, in], from element `first` in row-major order: Kaiming-uniform with
// a = sqrt(5) (He et al. 2015, as PEFT and nn.Linear), which is U(-1/sqrt(in), 1/sqrt(in)). Each is
// a function of (seed, tensor, element), whoever computes it; `tensor` is LoraTarget::tensor. B
// begins as zeros, so that the first merged weight is the base.
void InitialLoraA(
    uint64_t seed, int64_t tensor, int64_t in, int64_t first, int64_t count, float* out);

// A rank's shard of adapters from nothing, from PEFT's files and to them.

// Fills the masters with what training begins with: A Kaiming-uniform by (seed, tensor, element),
// whatever the number of ranks, B zero.
absl::Status InitAdapters(uint64_t seed, LoraWeights& weights);

// The same with the adapters in `directory`, as PEFT wrote them. Errors as ReadPeftAdapter;
// InvalidArgument where rank, alpha or targets are others than the run's.
absl::Status ReadAdapters(const std::string& directory,
                          const ModelSpec& model,
                          LoraWeights& weights);

// What reads them by the names of the masters' tensors, for a training state that has only their
// digests. Errors as ReadAdapters.
absl::StatusOr<MasterRowsReader> OpenAdapterMasters(const std::string& directory,
                                                    const ModelSpec& model,
                                                    const LoraWeights& weights);

// Rank 0 writes the adapters as the last LoraWeights::Gather left them to `directory`, which is
// made, in fp32, with rank, alpha, targets, dropout and the base's name. The other ranks write
// nothing. From a device they come by matrices, through memory that `ledger` counts under the tag
// gather.
absl::Status WriteAdapters(const std::string& directory,
                           const std::string& base_dir,
                           double dropout,
                           const LoraWeights& weights,
                           Ledger* ledger);

// What a run must agree on with the checkpoint it goes on from; null: all weights are trained.
std::vector<SavedSetting> LoraSettings(const LoraWeights* weights);

}  // namespace tandem
