// tandemctl parity: hands over to tandem-parity, which links both workers' code.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/status.h>

namespace tandem {

struct ParityCommandOptions {
  std::string model_dir;
  int64_t tokens = 2000;
  int64_t response_length = 64;
  int64_t max_num_seqs = 64;
  int64_t threads = 0;  // 0: all cores
  int64_t seed = 1;
  bool json = false;
};

// Replaces this process by the program beside it; returns only if that fails. NotFound: it is not
// there.
absl::Status ParityCommand(const ParityCommandOptions& options);

}  // namespace tandem
