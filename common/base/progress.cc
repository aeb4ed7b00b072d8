#include "common/base/progress.h"

#include <atomic>
#include <set>

#include <absl/base/thread_annotations.h>
#include <fmt/format.h>

#include "common/base/mutex.h"

namespace tandem {
namespace {

// Written by its own thread alone.
struct Work {
  int64_t thread = 0;
  std::atomic<int64_t> moves{0};
  std::atomic<int> steps{0};  // nested ones
  std::atomic<int> waits{0};  // nested ones
  std::atomic<const char*> activity{""};
  std::atomic<const char*> part{nullptr};
  std::atomic<int64_t> number{0};
};

class Works {
 public:
  // Lives to the end of the process, because threads may end late.
  static Works& OfProcess() {
    static Works& works = *new Works();
    return works;
  }
  void Add(Work* work) {
    const MutexLock lock(works_mutex_);
    work->thread = ++threads_;
    works_.insert(work);
  }
  void Remove(Work* work) {
    const MutexLock lock(works_mutex_);
    works_.erase(work);
    ended_moves_ += work->moves;
  }
  int64_t Moves() {
    const MutexLock lock(works_mutex_);
    int64_t moves = ended_moves_;
    for (const Work* work : works_) moves += work->moves;
    return moves;
  }
  std::vector<ThreadProgress> Read() {
    std::vector<ThreadProgress> all;
    const MutexLock lock(works_mutex_);
    for (const Work* work : works_) {
      const char* const part = work->part;
      all.push_back({.thread = work->thread,
                     .moves = work->moves,
                     .work_due = work->steps > 0 && work->waits == 0,
                     .activity = work->activity.load(),
                     .part = part == nullptr ? "" : fmt::format("{} {}", part, work->number)});
    }
    return all;
  }

 private:
  Mutex works_mutex_;
  int64_t threads_ ABSL_GUARDED_BY(works_mutex_) = 0;
  int64_t ended_moves_ ABSL_GUARDED_BY(works_mutex_) = 0;  // of threads that have ended
  std::set<Work*> works_ ABSL_GUARDED_BY(works_mutex_);
};

struct ListedWork : Work {
  ListedWork() { Works::OfProcess().Add(this); }
  ~ListedWork();
};

// Of the calling thread; null: it has had no WorkStep, or is about to end.
thread_local Work* listed = nullptr;

ListedWork::~ListedWork() {
  listed = nullptr;
  Works::OfProcess().Remove(this);
}

Work& OwnWork() {
  thread_local ListedWork work;
  listed = &work;
  return work;
}

void SetPart(Work& work, WorkPart part) {
  work.part = part.name;
  work.number = part.number;
}

}  // namespace

std::string ThreadProgress::Place() const {
  return part.empty() ? activity : fmt::format("{}, {}", activity, part);
}

std::string ThreadProgress::Text() const { return "in " + Place(); }

std::vector<ThreadProgress> CurrentProgress() { return Works::OfProcess().Read(); }

int64_t MovesOfProcess() { return Works::OfProcess().Moves(); }

void NoteActivity(const char* activity) {
  if (listed == nullptr) return;
  listed->activity = activity;
  ++listed->moves;
}

void NoteProgress() {
  if (listed != nullptr) ++listed->moves;
}

WorkStep::WorkStep(const char* activity, WorkPart part)
    : outer_activity_(OwnWork().activity), outer_part_{listed->part, listed->number} {
  SetPart(*listed, part);
  ++listed->steps;
  NoteActivity(activity);
}

WorkStep::~WorkStep() {
  SetPart(*listed, outer_part_);
  --listed->steps;
  NoteActivity(outer_activity_);
}

OutsideWait::OutsideWait() : waits_(listed == nullptr ? nullptr : &listed->waits) {
  if (waits_ != nullptr) ++*waits_;
}

OutsideWait::~OutsideWait() {
  if (waits_ == nullptr || listed == nullptr) return;
  --*waits_;
  ++listed->moves;
}

}  // namespace tandem
