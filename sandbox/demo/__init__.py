"""The demo: a whole cluster in processes on this machine, and pods that arrive on cards.

processes  child processes that never outlive the demo
cluster    which ones there are, and when they are ready
board      what is on which card, as the API says
script     what happens, in order, and where every pod has to land
verdict    whether every pod got what it asked for, and the JSON
screen     what people see
run        the command
"""
