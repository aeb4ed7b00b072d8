// The model of the targets that feed a worker's service: a pass through it takes about as long as
// the call around it.
#pragma once

#include <stdexcept>
#include <string>

#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace tandem::fuzz {

inline testing::TinyModelOptions SmallestModel() {
  return {.hidden_size = 32,
          .num_layers = 1,
          .num_heads = 2,
          .num_kv_heads = 1,
          .intermediate_size = 32,
          .max_position = 64};
}

// Its folder, made once for a process: no call may write there.
inline std::string SmallestModelDir() {
  static const testing::TempDir dir;
  static const absl::Status written = WriteTinyModel(dir.path().string(), SmallestModel());
  if (!written.ok()) throw std::runtime_error(written.ToString());
  return dir.path().string();
}

}  // namespace tandem::fuzz
