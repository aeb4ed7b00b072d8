// The real model in memory, and a generator over it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/device/device.h"
#include "common/text/tokenizer.h"
#include "common/weights/layout.h"
#include "rollout_worker/generation/generator.h"

namespace tandem::testing {

// models/SmolLM2-135M-Instruct as deploy/fetch_model.sh leaves it, or TANDEM_MODEL_DIR; see
// FolderOrSkip for what happens where it is missing.
std::string RealModelDir();

// Loaded once per process: 270 MB. A failure is a failed test.
class RealModel {
 public:
  static const RealModel& Get();

  const ModelSpec& spec() const { return spec_; }
  const WeightLayout& layout() const { return layout_; }
  const std::byte* weights() const { return region_->data(); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // What the chat template makes of one question.
  std::vector<int32_t> Question(const std::string& text) const;

 private:
  RealModel(const std::string& dir, ModelSpec spec);

  ModelSpec spec_;
  WeightLayout layout_;
  std::unique_ptr<MemoryRegion> region_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

struct GenerateOptions {
  int64_t max_num_seqs = 16;
  int64_t max_num_batched_tokens = 256;
  int threads = 2;
};

// Generates all requests together; samples by sample id.
std::map<uint64_t, Sample> Generate(const RealModel& model,
                                    const std::vector<GenerationRequest>& requests,
                                    const GenerateOptions& options = {});

// A request for `samples` samples with ids that `group` makes distinct.
GenerationRequest MakeRequest(int64_t group, std::vector<int32_t> prompt, int64_t samples);

}  // namespace tandem::testing
