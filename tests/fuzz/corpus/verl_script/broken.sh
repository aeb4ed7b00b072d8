x=((((((((((
for i in $(seq 3); do python -m verl.trainer.main_ppo a[0=b ${x[@]:1:-1} ${!x} ${x/#a/b}; done <<E
E
