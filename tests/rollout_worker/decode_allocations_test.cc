#include <atomic>
#include <cstdlib>
#include <new>

#include <catch2/catch.hpp>

#include "tests/rollout_worker/tiny_rig.h"

namespace {
std::atomic<bool> counting = false;
std::atomic<int64_t> allocations = 0;

void* Allocate(std::size_t bytes) {
  if (counting) ++allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes); }
void* operator new[](std::size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace tandem {
namespace {
using testing::Rig;
using testing::TinyWeights;

constexpr int64_t kSequences = 12, kPrompt = 70;

// One token more of every sequence, by all kinds of sampling.
class DecodeSteps {
 public:
  explicit DecodeSteps(Rig& rig) : rig_(rig) {
    for (int64_t i = 0; i < kSequences; ++i) {
      SamplingParams params;
      params.temperature = i % 3 == 0 ? 0.0f : 1.0f;
      if (i % 3 == 2) params.top_k = 5;
      groups_.push_back(MakeSequenceGroup(std::vector<int32_t>(kPrompt, 7),
                                          {MakeSampleId(0, 1, static_cast<uint64_t>(i))}, params));
      Sequence& sequence = *groups_.back()->sequences[0];
      sequence.tokens.reserve(1024);
      sequence.blocks = {static_cast<int32_t>(4 * i), static_cast<int32_t>(4 * i + 1)};
      plan_.spans.push_back({&sequence, 0, kPrompt, {&sequence}});
    }
  }

  void Run(const std::byte* weights) {
    for (const DrawnToken& token : rig_.runner->Run(plan_, weights, *rig_.kv)) {
      token.sequence->tokens.push_back(token.drawn.token);
    }
    for (PlannedSpan& span : plan_.spans) {
      span.first_position += span.tokens;
      span.tokens = 1;
    }
  }

 private:
  Rig& rig_;
  std::vector<std::unique_ptr<SequenceGroup>> groups_;
  StepPlan plan_;
};

}  // namespace

TEST_CASE("A decoding step of a warm model runner allocates nothing") {
  for (const int threads : {1, 2}) {
    for (const bool float32 : {false, true}) {
      const TinyWeights weights(testing::TinyModelOptions{.float32 = float32},
                                float32 ? DType::kFloat32 : DType::kBFloat16);
      Rig rig(weights, {.max_num_batched_tokens = 1024, .threads = threads});
      DecodeSteps steps(rig);
      for (int i = 0; i < 3; ++i) steps.Run(weights.region->data());
      counting = true;
      for (int i = 0; i < 20; ++i) steps.Run(weights.region->data());
      counting = false;
      REQUIRE(allocations == 0);
    }
  }
  counting = true;
  const auto counted = std::make_unique<int>(1);
  counting = false;
  REQUIRE(allocations == *counted);
}

}  // namespace tandem
