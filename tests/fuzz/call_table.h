// The calls of a target that feeds services: one for each method of theirs.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "tests/fuzz/message_builder.h"

namespace tandem::fuzz {

// Names of the services that the targets of this program feed; corpus_test.cc compares them with
// the proto files.
inline std::set<std::string>& FuzzedServices() {
  static std::set<std::string> names;
  return names;
}

class CallTable {
 public:
  struct Entry {
    std::string method;  // Service.Method
    std::function<void(ByteSource&)> call;
  };

  // `file` declares the services. Ends the process where a method has no call, or a call no method:
  // a new method would otherwise be fed nothing, and nobody would know.
  CallTable(const google::protobuf::FileDescriptor* file, std::vector<Entry> calls)
      : calls_(std::move(calls)) {
    std::set<std::string> missing = MethodsOf(file), unknown;
    for (const Entry& entry : calls_) {
      if (missing.erase(entry.method) == 0) unknown.insert(entry.method);
    }
    for (const std::string& method : missing) {
      std::fprintf(stderr, "no fuzz target calls %s of %s: add it to the table\n", method.c_str(),
                   std::string(file->name()).c_str());
    }
    for (const std::string& method : unknown) {
      std::fprintf(stderr, "%s is not a method of %s, or stands twice in the table: take it away\n",
                   method.c_str(), std::string(file->name()).c_str());
    }
    if (!missing.empty() || !unknown.empty()) std::abort();
  }

  // The call that the next byte chooses.
  void CallOne(ByteSource& source) const { calls_[source.Byte() % calls_.size()].call(source); }

 private:
  static std::set<std::string> MethodsOf(const google::protobuf::FileDescriptor* file) {
    std::set<std::string> methods;
    for (int s = 0; s < file->service_count(); ++s) {
      const google::protobuf::ServiceDescriptor* service = file->service(s);
      FuzzedServices().insert(service->name());
      for (int m = 0; m < service->method_count(); ++m) {
        methods.insert(service->name() + "." + service->method(m)->name());
      }
    }
    return methods;
  }

  std::vector<Entry> calls_;
};

// The worker of a target, made again where an input before has changed it, so that an input does
// the same whatever came before it.
template <typename Worker>
Worker& KeptWhileNew() {
  static std::unique_ptr<Worker> worker;
  if (worker == nullptr || !worker->IsNew()) {
    worker.reset();  // takes back its sockets and threads before the next one has any
    worker = std::make_unique<Worker>();
  }
  return *worker;
}

// Makes the calls of an input, a few at most: what is rare needs few calls, and each takes time.
template <typename Fed>
void FeedCalls(std::string_view input, Fed& fed) {
  ByteSource source(input);
  for (int i = 0; i < 8 && !source.empty(); ++i) fed.Call(source);
}

// Sets an integer field to the value that gets past the check of it, unless the next byte is one of
// few: made values almost never fit, and what lies behind the check would be fed nothing.
inline void Steer(ByteSource& source,
                  const std::string& field,
                  int64_t value,
                  google::protobuf::Message* message) {
  const google::protobuf::FieldDescriptor* found = message->GetDescriptor()->FindFieldByName(field);
  if (found == nullptr || source.Byte() >= 0xE0) return;
  message->GetReflection()->SetInt64(message, found, value);
}

}  // namespace tandem::fuzz
