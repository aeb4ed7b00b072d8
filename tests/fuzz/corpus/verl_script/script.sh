#!/bin/bash
set -xeuo pipefail
MODEL=${MODEL:-"$HOME/models/small"}
sizes=(64 "$((8 * 2 + 1))")
if [ "$#" -gt 1 ] && [[ ! -z "$MODEL" || ( -d /nowhere ) ]]; then name="${MODEL##*/}"; else name=none; fi
case "$name" in small|*.tiny) lr=1e-6 ;; *) lr=3e-6 ;; esac
for n in 1 2; do n=$((n + 1)); done
extra() { echo "$1"; return 0; }
python3 -m verl.trainer.main_ppo --config-name=ppo_trainer \
    data.train_files="['$HOME/a.jsonl','b.jsonl']" data.train_batch_size=${sizes[0]} \
    actor_rollout_ref.actor.optim.lr=$lr actor_rollout_ref.rollout.n=$n \
    +data.custom={a:1,b:[2,'x y']} ~reward_model.reward_kwargs \
    trainer.experiment_name="${name:0:3}_$(date +%Y%m%d)" $@
