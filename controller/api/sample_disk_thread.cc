#include "controller/api/sample_disk_thread.h"

#include <utility>

namespace tandem {

SampleDiskThread::SampleDiskThread() : thread_("sample disk", [this] { RunAll(); }) {}

SampleDiskThread::~SampleDiskThread() {
  {
    const MutexLock lock(tasks_mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.Join();
}

void SampleDiskThread::Post(std::function<void()> task) {
  const MutexLock lock(tasks_mutex_);
  tasks_.push_back(std::move(task));
  changed_.NotifyAll();
}

void SampleDiskThread::RunAll() {
  while (true) {
    std::function<void()> task;
    {
      const MutexLock lock(tasks_mutex_);
      while (tasks_.empty() && !ending_) changed_.Wait(tasks_mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace tandem
