// Which agent runs the workers of which host of the plan, while hosts are lost and come.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/types/topology.h"
#include "common/types/worker_key.h"

namespace tandem {

// What an agent runs: the workers of one host of the plan, or those of one of its roles.
struct AssignedShare {
  int host = 0;  // of the plan
  HostShare share;
};

// Workers of one host of the plan that change their agent.
struct HostMove {
  int host = 0;  // of the plan
  std::vector<WorkerKey> workers;
  int from = 0;          // an agent; kNobody: nobody ran them
  int to = 0;            // an agent; kNobody: they are left out from now on
  bool doubled = false;  // the new agent runs those of another host as well

  // "trainers 2 to 3"
  std::string WorkersText() const;
};

// Agents are numbered from 0: those of the plan's hosts, then the spare ones. At first each runs
// the host of its number, and spare ones nothing. When agents are gone,
// - a spare one takes over everything that one of them ran;
// - without one, trainers go to an agent that runs their neighbours in rank, since a sum over N
//   trainers needs all N, and ranks of one host have to be neighbours; where trainers share devices
//   with rollouts, these go along. Not where `double_up` is false;
// - rollouts with devices of their own are left out, as long as min_rollouts are left, until an
//   agent is there that runs nothing.
// What finds no agent stays with the one that is gone, and waits for it. Nothing moves back by
// itself: that would cost a run its steps since the last checkpoint. Not thread-safe.
class HostAssignment {
 public:
  static constexpr int kNobody = -1;

  // `hosts` of the plan must fit the topology (Topology::FitsHosts).
  HostAssignment(const Topology& topology, int hosts, int min_rollouts, bool double_up = true);

  int hosts() const { return static_cast<int>(hosts_.size()); }
  // By host of the plan; empty of an agent that runs nothing.
  std::vector<AssignedShare> SharesOf(int agent) const;

  // Moves the workers of agents that are gone to those that are here. An agent in neither set has
  // not come yet and keeps its workers.
  std::vector<HostMove> Settle(const std::set<int>& here, const std::set<int>& gone);

  // The hosts of the plan whose workers run with `agent`, as it says, are its own from now on. For
  // a controller that was started again, which does not know what moved before.
  void Adopt(int agent, const std::vector<WorkerKey>& running);

 private:
  struct Host {
    HostShare share;
    int trainers_agent = 0;  // kNobody: there are no trainers
    int rollouts_agent = 0;  // kNobody: there are none, or they are left out
  };

  bool RunsNothing(int agent) const;
  // An agent that is here and runs nothing; kNobody: there is none.
  int FindSpare(const std::set<int>& here) const;
  // The agent that is here of the nearest host in rank with trainers, seen past those that are
  // gone; where there is none, the agent that runs the fewest hosts' workers. kNobody: no agent is
  // here, or the neighbours have not come yet.
  int FindNeighbour(int host, const std::set<int>& here, const std::set<int>& gone) const;
  int RolloutsWith(const std::set<int>& agents) const;
  void SettleTrainers(int host,
                      const std::set<int>& here,
                      const std::set<int>& gone,
                      std::vector<HostMove>* moves);
  void SettleRollouts(int host,
                      const std::set<int>& here,
                      const std::set<int>& gone,
                      std::vector<HostMove>* moves);

  const bool apart_;
  const int min_rollouts_;
  const bool double_up_;
  std::vector<Host> hosts_;  // of the plan
};

}  // namespace tandem
