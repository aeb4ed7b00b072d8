// The inputs that a checkpoint was made with, and their comparison with those that a run would
// continue with.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace tandem {

// An input as checkpoints record it. What it contains identifies it, not where it lies: files may
// be moved.
struct PinnedInput {
  std::string key;   // the config's key that names it, and which part: "model.path (tokenizer)"
  std::string path;  // for messages
  int64_t bytes = 0;
  std::string digest;  // of its content
  friend bool operator==(const PinnedInput&, const PinnedInput&) = default;
};

// A line for every difference: the key, the file, bytes and digest then and now. Inputs of one key
// are compared in their order, because the order of data files decides the order of rows. Empty:
// all are equal. Validation files that are given only then or only now are no difference: nothing
// that was measured is compared with anything else.
std::vector<std::string> ChangedInputs(const std::vector<PinnedInput>& then,
                                       const std::vector<PinnedInput>& now);

// Keys of the configuration (without the part) all of whose inputs are recorded, and equal: another
// path in one of them changes nothing.
std::set<std::string> KeysOfEqualInputs(const std::vector<PinnedInput>& then,
                                        const std::vector<PinnedInput>& now);

}  // namespace tandem
