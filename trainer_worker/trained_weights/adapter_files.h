// Initial adapters of a training run, and adapters read from and written to PEFT's files.
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

// Writes `count` elements of A [rank, in], from element `first` in row-major order: Kaiming-uniform
// with a = sqrt(5) (He et al. 2015, as in PEFT and nn.Linear), which is U(-1/sqrt(in), 1/sqrt(in)).
// Each element is a function of (seed, tensor, element), the same on every rank; `tensor` is
// LoraTarget::tensor. B starts as zeros, so that the first merged weight is the base.
void InitialLoraA(
    uint64_t seed, int64_t tensor, int64_t in, int64_t first, int64_t count, float* out);

// Fills the masters with the adapters that training starts with: A as in InitialLoraA, B zero. The
// values do not depend on the number of ranks.
absl::Status InitAdapters(uint64_t seed, LoraWeights& weights);

// Fills the masters with the adapters in `directory`, in PEFT's format. Errors as PeftAdapter::Open
// and ReadRows; InvalidArgument: rank, alpha or targets differ from the run's.
absl::Status ReadAdapters(const std::string& directory,
                          const ModelSpec& model,
                          LoraWeights& weights);

// Opens a reader of the adapters in `directory`, by the names of the masters' tensors, for a
// training state that holds only the digests of its masters. Errors as ReadAdapters.
absl::StatusOr<MasterRowsReader> OpenAdapterMasters(const std::string& directory,
                                                    const ModelSpec& model,
                                                    const LoraWeights& weights);

// On rank 0, writes the adapters of the last LoraWeights::Gather in fp32 to `directory`, which is
// created, with rank, alpha, targets, dropout and the base's name. Other ranks write nothing.
// Adapters on a device are copied matrix by matrix, through memory that `ledger` counts under the
// tag gather.
absl::Status WriteAdapters(const std::string& directory,
                           const std::string& base_dir,
                           double dropout,
                           const LoraWeights& weights,
                           Ledger* ledger);

// The settings that a run must share with the checkpoint it resumes from; null: all weights are
// trained.
std::vector<SavedSetting> LoraSettings(const LoraWeights* weights);

}  // namespace tandem
