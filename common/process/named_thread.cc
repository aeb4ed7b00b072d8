#include "common/process/named_thread.h"

#include <pthread.h>

namespace tandem {

NamedThread::NamedThread(const std::string& name, std::function<void()> body)
    : thread_([name, body = std::move(body)] {
        pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
        body();
      }) {}

}  // namespace tandem
