// One forward over all tokens of a sample, as a trainer computes it: what decoding, token by token,
// must have the bits of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "common/device/device.h"
#include "common/model_spec/model_spec.h"
#include "common/ops/forward_ops.h"
#include "common/types/sample.h"

namespace tandem::testing {

// Weights on a device, in the layout of the ops that read them.
struct HeldModel {
  const ModelSpec& spec;
  const std::byte* storage = nullptr;
  int64_t vocab_limit = 0;
};

// One entry per response token.
struct WholeForward {
  std::vector<float> log_probs;      // of the sample's tokens, at its temperature
  std::vector<SampledToken> greedy;  // what greedy decoding draws in their places
};

// `ops` compute on `device`. Takes activations and a KV cache for the call. Errors are the
// device's.
absl::StatusOr<WholeForward> ForwardWhole(Device* device,
                                          ForwardOps& ops,
                                          const HeldModel& model,
                                          const Sample& sample);

// fp32 logits [last_rows, vocabulary] of the last tokens.
absl::StatusOr<std::vector<float>> LogitsWhole(Device* device,
                                               ForwardOps& ops,
                                               const HeldModel& model,
                                               const std::vector<int32_t>& tokens,
                                               int64_t last_rows);

}  // namespace tandem::testing
