// The tokens of one sample with what is known of each.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/base/mutex.h"

namespace tandem {

class Tokenizer;

// Some consecutive tokens of a sample: its prompt, then its response.
struct TokenWindow {
  int64_t prompt_tokens = 0, tokens = 0;  // of the whole sample
  int64_t first = 0;                      // position of the window's first token
  std::vector<int32_t> ids;
  // What each token adds to the text; a character that several tokens make is at the last of them.
  // Empty: `note` says why the tokenizer is not there.
  std::vector<std::string> texts;
  std::string note;
  // By the names of kSavedArrays (controller/store/saved_batch.h), those that the step has; and
  // "versions". One value for each token of the window; NaN for those of the prompt.
  std::map<std::string, std::vector<double>> values;
};

// Keeps the tokenizers that it has read, at most kTokenizers. Thread-safe.
class TokenReader {
 public:
  static constexpr size_t kTokenizers = 2;

  // At most `count` tokens from position `first` on of a sample of the run in `run_dir`. NotFound:
  // the step's tokens are not kept any more, or the step has no such sample; errors as BatchReader.
  absl::StatusOr<TokenWindow> Read(
      const std::string& run_dir, int64_t step, uint64_t sample_id, int64_t first, int64_t count);

 private:
  absl::StatusOr<std::shared_ptr<const Tokenizer>> TokenizerOf(const std::string& model_path);

  Mutex mutex_;
  std::map<std::string, std::shared_ptr<const Tokenizer>> tokenizers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
