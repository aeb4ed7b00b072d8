// A blocking multi-producer, multi-consumer queue whose producers wait while it is full.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "common/base/mutex.h"

namespace tandem {

// Thread-safe. After Close(), Push refuses and Pop drains what is left, then returns nullopt.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // Blocks while full. Returns false if the queue was closed; the item is dropped then.
  bool Push(T item) {
    const MutexLock lock(items_mutex_);
    while (!closed_ && items_.size() >= capacity_) not_full_.Wait(items_mutex_);
    if (closed_) return false;
    items_.push_back(std::move(item));
    not_empty_.NotifyOne();
    return true;
  }

  // Returns false instead of blocking when full or closed; `item` is untouched then.
  bool TryPush(T& item) {
    const MutexLock lock(items_mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    not_empty_.NotifyOne();
    return true;
  }

  // Blocks while empty. nullopt means closed and drained.
  std::optional<T> Pop() {
    const MutexLock lock(items_mutex_);
    while (!closed_ && items_.empty()) not_empty_.Wait(items_mutex_);
    return TakeFirst();
  }

  // Waits at most `timeout`. nullopt: no item arrived in time, or closed and drained.
  std::optional<T> PopFor(std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const MutexLock lock(items_mutex_);
    while (!closed_ && items_.empty() && not_empty_.WaitUntil(items_mutex_, deadline)) {
    }
    return TakeFirst();
  }

  // Does not block. nullopt: the queue is empty.
  std::optional<T> TryPop() {
    const MutexLock lock(items_mutex_);
    return TakeFirst();
  }

  size_t Size() const {
    const MutexLock lock(items_mutex_);
    return items_.size();
  }

  void Close() {
    const MutexLock lock(items_mutex_);
    closed_ = true;
    not_empty_.NotifyAll();
    not_full_.NotifyAll();
  }

 private:
  std::optional<T> TakeFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(items_mutex_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    not_full_.NotifyOne();
    return item;
  }

  const size_t capacity_;
  mutable Mutex items_mutex_;
  ConditionVariable not_empty_, not_full_;
  std::deque<T> items_ ABSL_GUARDED_BY(items_mutex_);
  bool closed_ ABSL_GUARDED_BY(items_mutex_) = false;
};

}  // namespace tandem
