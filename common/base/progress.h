// What the threads of this process that must not stand still are doing, for the watchdogs that
// check that they advance.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

// Which one of many the work is at: {"layer", 7}.
struct WorkPart {
  const char* name = nullptr;  // a string literal; null: none
  int64_t number = 0;
};

// What one thread is at.
struct ThreadProgress {
  int64_t thread = 0;     // a number that no other thread of the process ever has
  int64_t moves = 0;      // grows with every step that begins or ends, and every note
  bool work_due = false;  // false: nothing to do, or an OutsideWait
  std::string activity;   // "attention"
  std::string part;       // "layer 7"; empty: none

  std::string Place() const;  // "attention, layer 7"
  std::string Text() const;   // "in attention, layer 7"
};

// Of the threads that live and have had a WorkStep. Thread-safe and cheap; the parts of an entry
// may be of two moments that follow each other.
std::vector<ThreadProgress> CurrentProgress();
// The moves of all threads of the process, those that have ended included: never falls.
int64_t MovesOfProcess();

// The calling thread is at `activity`, a string literal, of the part that its innermost WorkStep
// names. Does nothing on a thread that has had no WorkStep, as NoteProgress does.
void NoteActivity(const char* activity);
// Notes that the work of the calling thread goes on: bytes were moved, or an answer arrived.
void NoteProgress();

// From its construction to its destruction the calling thread has work that must go on. May be
// nested.
class WorkStep {
 public:
  explicit WorkStep(const char* activity, WorkPart part = {});
  ~WorkStep();
  WorkStep(const WorkStep&) = delete;
  WorkStep& operator=(const WorkStep&) = delete;

 private:
  const char* const outer_activity_;
  const WorkPart outer_part_;
};

// From its construction to its destruction the calling thread waits for something outside of it
// that is watched elsewhere or may take any time: a peer, whose silence has a limit of its own; a
// disk; a user. May be nested, in steps and in itself.
class OutsideWait {
 public:
  OutsideWait();
  ~OutsideWait();
  OutsideWait(const OutsideWait&) = delete;
  OutsideWait& operator=(const OutsideWait&) = delete;

 private:
  std::atomic<int>* const waits_;  // of a thread that had a WorkStep when the wait began; or null
};

}  // namespace tandem
