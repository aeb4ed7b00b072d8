#include "controller/view/token_view.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/text/tokenizer.h"
#include "controller/store/batch_file.h"
#include "controller/store/saved_batch.h"

namespace tandem {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

absl::StatusOr<SavedSample> FindSample(const BatchReader& batch, uint64_t sample_id) {
  // In order of sample id.
  size_t low = 0, high = batch.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    batch.Meta(middle).sample_id < sample_id ? low = middle + 1 : high = middle;
  }
  if (low < batch.size() && batch.Meta(low).sample_id == sample_id) return batch.Read(low);
  return MakeStatus(absl::StatusCode::kNotFound,
                    "{} has no sample {}: only samples that were trained on", batch.path(),
                    sample_id);
}

// What each token from `first` to `last` adds to the text of the whole sample.
std::vector<std::string> TextsOf(const Tokenizer& tokenizer,
                                 const std::vector<int32_t>& tokens,
                                 int64_t first,
                                 int64_t last) {
  StreamDecoder decoder(tokenizer, /*skip_special_tokens=*/false);
  std::vector<std::string> texts;
  for (int64_t i = 0; i < last; ++i) {
    std::string text = decoder.Push(tokens[static_cast<size_t>(i)]);
    if (i >= first) texts.push_back(std::move(text));
  }
  if (last == std::ssize(tokens) && !texts.empty()) texts.back() += decoder.Finish();
  return texts;
}

// The values of a window of which some are of the prompt, which has none.
template <typename Value>
std::vector<double> InWindow(const std::vector<Value>& of_response, const TokenWindow& window) {
  std::vector<double> values(window.ids.size(), kNoValue);
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t at = window.first + static_cast<int64_t>(i) - window.prompt_tokens;
    if (at < 0 || at >= std::ssize(of_response)) continue;
    values[i] = static_cast<double>(of_response[static_cast<size_t>(at)]);
  }
  return values;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> TokenReader::TokenizerOf(
    const std::string& model_path) {
  const MutexLock lock(mutex_);
  const auto found = tokenizers_.find(model_path);
  if (found != tokenizers_.end()) return found->second;
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> loaded, Tokenizer::Load(model_path));
  if (tokenizers_.size() == kTokenizers) tokenizers_.clear();
  return tokenizers_[model_path] = std::move(loaded);
}

absl::StatusOr<TokenWindow> TokenReader::Read(
    const std::string& run_dir, int64_t step, uint64_t sample_id, int64_t first, int64_t count) {
  const std::string path = fmt::format("{}/samples/step_{:06}{}", run_dir, step, kSamplesSuffix);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return MakeStatus(
        absl::StatusCode::kNotFound,
        "the tokens of step {} are not kept: trainer.sample_files_to_keep says of how "
        "many newest steps they are",
        step);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<const BatchReader> batch, BatchReader::Open(path));
  TANDEM_ASSIGN_OR_RETURN(const SavedSample sample, FindSample(*batch, sample_id));
  TokenWindow window;
  window.tokens = std::ssize(sample.tokens);
  window.prompt_tokens = sample.prompt_tokens;
  window.first = std::clamp<int64_t>(first, 0, window.tokens);
  const int64_t last = window.first + std::clamp<int64_t>(count, 0, window.tokens - window.first);
  window.ids.assign(sample.tokens.begin() + window.first, sample.tokens.begin() + last);
  const auto tokenizer = TokenizerOf(batch->info().model_path);
  if (tokenizer.ok()) {
    window.texts = TextsOf(**tokenizer, sample.tokens, window.first, last);
  } else {
    window.note = std::string(tokenizer.status().message());
  }
  for (const SavedArray& array : kSavedArrays) {
    const std::vector<float>& values = sample.*array.values;
    if (!values.empty()) window.values[array.name] = InWindow(values, window);
  }
  window.values[kBatchVersions] = InWindow(sample.versions, window);
  return window;
}

}  // namespace tandem
