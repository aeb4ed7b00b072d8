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

// On its own: where GCC inlines operator delete and not operator new, it warns of free() for what
// was made by new.
[[gnu::noinline]] void Release(void* memory) { std::free(memory); }
}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes); }
void* operator new[](std::size_t bytes) { return Allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes); }
void operator delete(void* memory) noexcept { Release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { Release(memory); }
void operator delete[](void* memory) noexcept { Release(memory); }
void operator delete(void* memory, std::size_t) noexcept { Release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { Release(memory); }

namespace tandem {
using testing::Rig;
using testing::TinyWeights;

TEST_CASE("Decoding allocates nothing while the same samples go on") {
  for (const int threads : {1, 2}) {
    for (const bool float32 : {false, true}) {
      const TinyWeights weights(testing::TinyModelOptions{.float32 = float32},
                                float32 ? DType::kFloat32 : DType::kBFloat16);
      Rig rig(weights, {.max_num_batched_tokens = 1024, .threads = threads});
      std::vector<std::shared_ptr<testing::CollectingSink>> sinks;
      for (GenerationRequest& request : testing::MixedRequests({70, 9, 100, 64}, 3, 200)) {
        request.params.ignore_eos = true;
        sinks.push_back(rig.Submit(request));
      }
      // All prompts are read, and the first tokens drawn.
      for (int i = 0; i < 5; ++i) rig.Step();
      const int64_t scratch = rig.runner->ops().workspace_bytes();
      allocations = 0;
      counting = true;
      for (int i = 0; i < 100; ++i) rig.Step();
      counting = false;
      REQUIRE(allocations == 0);
      REQUIRE(rig.runner->ops().workspace_bytes() == scratch);
      rig.Run();
      for (const auto& sink : sinks) REQUIRE(sink->samples.size() == 3);
    }
  }
  counting = true;
  const auto counted = std::make_unique<int>(1);
  counting = false;
  REQUIRE(allocations == *counted);
}

}  // namespace tandem
