// What the engine of this process is doing, for the watchdog that checks that it advances.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

// What an engine thread that must not stand still is at.
struct EngineProgress {
  int64_t steps = 0;      // grows with every step that begins or ends, and every activity
  bool work_due = false;  // false: nothing to do, or waiting for peers, who are watched themselves
  std::string activity;   // "attention"; empty: none yet
  int64_t layer = -1;     // -1: of no layer

  std::string Text() const;  // "in attention, layer 7"
};

// Thread-safe and cheap; the parts may be of two moments that follow each other.
EngineProgress CurrentProgress();

// The engine thread of this process is at `activity`, a string literal, of the layer that the
// innermost WorkStep names.
void NoteActivity(const char* activity);

// From its construction to its destruction the engine thread has work that must go on: computing,
// never waiting for a peer. May be nested. Only the engine thread makes them.
class WorkStep {
 public:
  explicit WorkStep(const char* activity, int64_t layer = -1);
  ~WorkStep();
  WorkStep(const WorkStep&) = delete;
  WorkStep& operator=(const WorkStep&) = delete;

 private:
  const char* const outer_activity_;
  const int64_t outer_layer_;
};

}  // namespace tandem
