#include "common/text/jinja/value/allowance.h"

#include <utility>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/text/jinja/value/value.h"

namespace tandem::jinja {
namespace {

constexpr uint64_t kObjectBytes = 256;  // of an object that is kept to the end, about

thread_local Allowance* current_allowance = nullptr;

}  // namespace

Allowance::Allowance() : outer_(std::exchange(current_allowance, this)) {}

Allowance::~Allowance() {
  // Namespaces may hold each other in a circle.
  for (const auto& object : objects_) object->LetGo();
  while (!objects_.empty()) objects_.pop_back();
  current_allowance = outer_;
}

void Allowance::Fail(std::string reason) {
  if (!status_.ok()) return;
  status_ = InvalidArgument(
      "the template {}: it never ends, or it is meant to do harm; use the template of the model's "
      "publisher, or a shorter conversation",
      reason);
}

const absl::Status& Allowance::Step() {
  if (++steps_ > kMaxSteps) Fail(fmt::format("takes more than {} steps", kMaxSteps));
  Work(16);
  return status_;
}

bool Allowance::Work(uint64_t bytes) {
  work_ += bytes < kMaxWorkBytes ? bytes : kMaxWorkBytes;
  if (work_ > kMaxWorkBytes) {
    Fail(fmt::format("makes or searches more than {} MiB of values", kMaxWorkBytes >> 20));
  }
  return status_.ok();
}

bool Allowance::Text(uint64_t bytes) {
  if (bytes > kMaxTextBytes) {
    Fail(fmt::format("makes a text of more than {} MiB", kMaxTextBytes >> 20));
  }
  return Work(bytes);
}

bool Allowance::Nest(int value_depth) {
  if (value_depth > kMaxValueDepth) {
    Fail(fmt::format("nests values more than {} levels deep", kMaxValueDepth));
  }
  return status_.ok();
}

void Allowance::Keep(std::shared_ptr<Object> object) {
  Work(kObjectBytes);
  objects_.push_back(std::move(object));
}

Allowance* CurrentAllowance() { return current_allowance; }

bool MayWork(uint64_t bytes) {
  return current_allowance == nullptr || current_allowance->Work(bytes);
}

bool MayMakeText(uint64_t bytes) {
  return current_allowance == nullptr || current_allowance->Text(bytes);
}

bool MayGrow(const std::string& text, uint64_t bytes) {
  if (current_allowance == nullptr) return true;
  if (text.size() + bytes > kMaxTextBytes) return current_allowance->Text(text.size() + bytes);
  return current_allowance->Work(bytes);
}

bool MayMakeItems(size_t items, int depth) {
  return current_allowance == nullptr ||
         (current_allowance->Work(items * sizeof(Value)) && current_allowance->Nest(depth));
}

bool DepthScope::too_deep() const {
  if (allowance_ == nullptr) return false;
  if (allowance_->depth > kMaxEvaluationDepth) {
    allowance_->Fail(
        fmt::format("calls itself or nests more than {} levels deep", kMaxEvaluationDepth));
  }
  return !allowance_->ok();
}

}  // namespace tandem::jinja
