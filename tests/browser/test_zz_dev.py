import sys; sys.path.insert(0,"/work/main/tests/browser")
import time, pytest
from notebook import *
SH="/tmp/w/shots/"
BROKEN="""
from d2lite import Panel, train
import torch
def mine(num_gpus, lr, width=16, momentum=0.9, animator=None):
    for epoch in range(3):
        print("epoch", epoch, "loss", 1 / (epoch + 1))
        animator.add(epoch + 1, 0.3 + epoch / 10)
    return torch.zeros(3, 2) @ torch.zeros(3, 2)
panel = Panel(mine, num_gpus=2, lr=0.2)
panel
"""
@pytest.mark.parametrize("theme,width",[("Light",1400),("Dark",1400),("Light",900),("Dark",900)])
def test_shot(lab,page,theme,width):
    lab.theme(theme)
    page.set_viewport_size({"width":width,"height":1300 if width==1400 else 1600})
    write(lab.folder/"a.ipynb","from d2lite import Panel, train\npanel = Panel(train, num_gpus=1, lr=0.1, batch_size=64, num_epochs=5, fixed={'num_examples': 1000})\npanel")
    open_notebook(page,lab,"a.ipynb"); run_all(page)
    page.wait_for_selector(".d2lite .js-plotly-plot .main-svg"); page.wait_for_timeout(500)
    n=0
    for lr in (0.1,0.05,0.2,0.02,0.1,10,0.1):
        set_number(page,"lr",lr); step(page,"num_gpus","ArrowRight" if n%2 else "Home")
        press(page,"Train"); n+=1
        if n==7:
            until(lambda: "step" in page.inner_text(".d2lite")); page.wait_for_timeout(600); press(page,"Stop")
        until(lambda: len(rows(page))==n+1 and rows(page)[-1][5]!="running",60)
    page.wait_for_timeout(500)
    page.screenshot(path=f"{SH}many-{theme}-{width}.png")
    if width==900 and theme=="Dark":
        page.locator(".d2lite").evaluate("e=>e.scrollIntoView({block:'end'})"); page.wait_for_timeout(300); page.screenshot(path=f"{SH}many-end-{theme}-{width}.png")
    if width==1400:
        write(lab.folder/"b.ipynb",BROKEN); open_notebook(page,lab,"b.ipynb"); run_all(page)
        page.wait_for_selector(".d2lite .js-plotly-plot .main-svg")
        press(page,"Train"); until(lambda: len(rows(page))==2 and rows(page)[-1][5]!="running",60); page.wait_for_timeout(400)
        page.screenshot(path=f"{SH}broken-{theme}-{width}.png")
