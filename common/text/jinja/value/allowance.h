// What one rendering may use. A template comes with a model, which anyone may have written: without
// a limit a line of it would take all memory or never end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace tandem::jinja {

class Object;

// A fuzzer reaches a limit often, and must not take seconds for it; its build defines this name.
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
inline constexpr int kLimitShift = 10;
#else
inline constexpr int kLimitShift = 0;
#endif

inline constexpr size_t kMaxSourceBytes = size_t{1} << 20;  // of a template
// Of the rendered text, and of a value.
inline constexpr size_t kMaxTextBytes = (size_t{64} << 20) >> kLimitShift;
// Made or looked at, all together.
inline constexpr uint64_t kMaxWorkBytes = (uint64_t{1} << 30) >> kLimitShift;
inline constexpr int64_t kMaxSteps = 10'000'000 >> kLimitShift;  // expressions and statements
inline constexpr int kMaxEvaluationDepth = 1500;  // of expressions and statements in each other
inline constexpr int kMaxValueDepth = 256;        // of lists and mappings in each other

// Limits everything that its thread does with values while it lives. Functions that make values
// cannot return errors: they record an exceeded limit here and return a small value, and the next
// call of Step ends the rendering. Not thread-safe.
class Allowance {
 public:
  Allowance();
  // Lets go of objects newest first: each may hold the one before, in a chain of any length.
  ~Allowance();
  Allowance(const Allowance&) = delete;
  Allowance& operator=(const Allowance&) = delete;

  // InvalidArgument, naming the limit, once one was passed.
  const absl::Status& status() const { return status_; }
  void Fail(std::string reason);
  bool ok() const { return status_.ok(); }

  // One more expression or statement; the result of status().
  const absl::Status& Step();
  bool Work(uint64_t bytes);
  bool Text(uint64_t bytes);
  bool Nest(int depth);
  // Until the end of the rendering, so that objects are not destroyed from within each other.
  void Keep(std::shared_ptr<Object> object);

  // Nesting of what calls itself.
  int depth = 0;

 private:
  absl::Status status_;
  uint64_t work_ = 0;
  int64_t steps_ = 0;
  std::vector<std::shared_ptr<Object>> objects_;
  Allowance* const outer_;  // of the same thread
};

// The thread's, nullptr outside a rendering.
Allowance* CurrentAllowance();

// False: the rendering has no allowance left for `bytes` more of work, and ends. True outside one.
bool MayWork(uint64_t bytes);
// The same for a text of `bytes`, before it is made.
bool MayMakeText(uint64_t bytes);
// The same for `bytes` more of a text that grows.
bool MayGrow(const std::string& text, uint64_t bytes);
// The same for a list or mapping of `items` that holds others `depth` deep.
bool MayMakeItems(size_t items, int depth);

// One level of a function that calls itself. too_deep() ends the rendering.
class DepthScope {
 public:
  explicit DepthScope(Allowance* allowance) : allowance_(allowance) {
    if (allowance_ != nullptr) ++allowance_->depth;
  }
  ~DepthScope() {
    if (allowance_ != nullptr) --allowance_->depth;
  }
  DepthScope(const DepthScope&) = delete;
  DepthScope& operator=(const DepthScope&) = delete;
  bool too_deep() const;

 private:
  Allowance* const allowance_;
};

}  // namespace tandem::jinja
