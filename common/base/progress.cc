#include "common/base/progress.h"

#include <atomic>

#include <fmt/format.h>

namespace tandem {
namespace {

struct SharedProgress {
  std::atomic<int64_t> steps{0};
  std::atomic<int> depth{0};  // of nested steps
  std::atomic<const char*> activity{""};
  std::atomic<int64_t> layer{-1};
};

SharedProgress& Shared() {
  static SharedProgress progress;
  return progress;
}

}  // namespace

std::string EngineProgress::Text() const {
  if (activity.empty()) return "before its first step";
  return layer < 0 ? fmt::format("in {}", activity)
                   : fmt::format("in {}, layer {}", activity, layer);
}

EngineProgress CurrentProgress() {
  const SharedProgress& shared = Shared();
  return {.steps = shared.steps.load(std::memory_order_relaxed),
          .work_due = shared.depth.load(std::memory_order_relaxed) > 0,
          .activity = shared.activity.load(std::memory_order_relaxed),
          .layer = shared.layer.load(std::memory_order_relaxed)};
}

void NoteActivity(const char* activity) {
  SharedProgress& shared = Shared();
  shared.activity.store(activity, std::memory_order_relaxed);
  shared.steps.fetch_add(1, std::memory_order_relaxed);
}

WorkStep::WorkStep(const char* activity, int64_t layer)
    : outer_activity_(Shared().activity.load(std::memory_order_relaxed)),
      outer_layer_(Shared().layer.load(std::memory_order_relaxed)) {
  Shared().layer.store(layer, std::memory_order_relaxed);
  Shared().depth.fetch_add(1, std::memory_order_relaxed);
  NoteActivity(activity);
}

WorkStep::~WorkStep() {
  Shared().layer.store(outer_layer_, std::memory_order_relaxed);
  Shared().depth.fetch_sub(1, std::memory_order_relaxed);
  NoteActivity(outer_activity_);
}

}  // namespace tandem
