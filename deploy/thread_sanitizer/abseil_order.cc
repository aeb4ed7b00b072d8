// Linked into every program under ThreadSanitizer only, in front of Debian's Abseil, which is
// not instrumented: ThreadSanitizer is told what Abseil's mutexes order. gRPC guards by them what
// it shares with the code that it calls. Which functions those are, and their names: `nm -D` of
// libgrpc++, libgrpc and libgpr.
#include <cstdint>

#include <sanitizer/tsan_interface.h>

#include "deploy/thread_sanitizer/real_function.h"

namespace {

// As Abseil's Duration and Time, by the calling convention.
struct Moment {
  int64_t seconds;
  uint32_t ticks;
};

}  // namespace

#define TANDEM_MUTEX "_ZN4absl7debian35Mutex"
#define TANDEM_CONDITION "_ZN4absl7debian37CondVar"

extern "C" {

void AbseilLock(void* mutex) asm(TANDEM_MUTEX "4LockEv");
void AbseilLock(void* mutex) {
  TANDEM_REAL(AbseilLock, TANDEM_MUTEX "4LockEv");
  real(mutex);
  __tsan_acquire(mutex);
}

bool AbseilTryLock(void* mutex) asm(TANDEM_MUTEX "7TryLockEv");
bool AbseilTryLock(void* mutex) {
  TANDEM_REAL(AbseilTryLock, TANDEM_MUTEX "7TryLockEv");
  if (!real(mutex)) return false;
  __tsan_acquire(mutex);
  return true;
}

void AbseilUnlock(void* mutex) asm(TANDEM_MUTEX "6UnlockEv");
void AbseilUnlock(void* mutex) {
  TANDEM_REAL(AbseilUnlock, TANDEM_MUTEX "6UnlockEv");
  __tsan_release(mutex);
  real(mutex);
}

void AbseilWait(void* condition, void* mutex) asm(TANDEM_CONDITION "4WaitEPNS0_5MutexE");
void AbseilWait(void* condition, void* mutex) {
  TANDEM_REAL(AbseilWait, TANDEM_CONDITION "4WaitEPNS0_5MutexE");
  __tsan_release(mutex);
  real(condition, mutex);
  __tsan_acquire(mutex);
}

bool AbseilWaitFor(void* condition,
                   void* mutex,
                   Moment timeout) asm(TANDEM_CONDITION
                                       "15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
bool AbseilWaitFor(void* condition, void* mutex, Moment timeout) {
  TANDEM_REAL(AbseilWaitFor, TANDEM_CONDITION "15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(mutex);
  const bool late = real(condition, mutex, timeout);
  __tsan_acquire(mutex);
  return late;
}

bool AbseilWaitUntil(void* condition,
                     void* mutex,
                     Moment deadline) asm(TANDEM_CONDITION
                                          "16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
bool AbseilWaitUntil(void* condition, void* mutex, Moment deadline) {
  TANDEM_REAL(AbseilWaitUntil, TANDEM_CONDITION "16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  __tsan_release(mutex);
  const bool late = real(condition, mutex, deadline);
  __tsan_acquire(mutex);
  return late;
}

}  // extern "C"
