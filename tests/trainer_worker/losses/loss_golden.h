// What the golden tests of losses share: options and tensors of a case.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/golden.h"
#include "tests/support/golden_tensor.h"
#include "trainer_worker/losses/loss_options.h"
#include "trainer_worker/losses/tensors.h"

namespace tandem::testing {

inline std::vector<int64_t> RowsOf(const GoldenTensor& tensor) {
  std::vector<int64_t> rows;
  const int64_t width = tensor.shape.at(1);
  for (size_t i = 0; i < tensor.values.size(); ++i) rows.push_back(static_cast<int64_t>(i) / width);
  return rows;
}

inline std::optional<double> Optional(const Json& options, const char* key) {
  if (!options.contains(key) || options.at(key).is_null()) return std::nullopt;
  return options.at(key).get<double>();
}

// `global` holds the counts of the global batch, if any.
inline LossScale ScaleOf(const Json& options, const Json& global, double horizon) {
  LossScale scale;
  scale.mode = options.at("loss_agg_mode").get<std::string>();
  scale.dp_size = global.value("dp_size", int64_t{1});
  scale.batch_tokens = Optional(global, "batch_num_tokens");
  scale.batch_samples = Optional(global, "global_batch_size");
  scale.loss_scale_factor = Optional(global, "loss_scale_factor");
  scale.horizon = horizon;
  return scale;
}

inline at::Tensor ToTensor(const GoldenTensor& golden) {
  return at::tensor(golden.Floats()).reshape(golden.shape);
}

inline std::vector<float> Values(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().to(at::kFloat).contiguous();
  return {dense.data_ptr<float>(), dense.data_ptr<float>() + dense.numel()};
}

}  // namespace tandem::testing
