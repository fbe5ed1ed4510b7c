# What runs inside: the services as docs/deploy.md installs them, with the addresses of their units.
trap "journalctl --no-pager --lines=100 --output=cat" ERR
useradd --system innet
for address in 192.168.1.1 192.168.1.2 10.0.0.3; do ip address add $address/32 dev lo; done
for port in 1 2; do
    ip link add eth$port type veth peer name host$port
    ip link set eth$port up
    ip link set host$port up
done
export PATH=/opt/innet/bin:$PATH INNET_CONTROLLER=192.168.1.1:9600 INNET_TLS=/etc/innet/certs
mkdir /etc/innet
innet certificates make $INNET_TLS --host 192.168.1.1 --host 192.168.1.2
chmod -R go= /etc/innet

services="innet-switch innet-controller innet-pbox"
systemctl start $services
innet switch add tor 192.168.1.2:9559 --ports 1-2
innet job create train --switch tor --workers 2 > /dev/null
env --unset=INNET_TLS innet pbox bench 10.0.0.3:19791 --workers 1 --megabytes 0.1 --steps 1

systemctl kill --kill-whom=main --signal=KILL $services
for service in $services; do
    until [ "$(systemctl show --property=NRestarts --value $service)" = 1 ] \
        && systemctl is-active $service; do sleep 0.2; done
done
innet job show train
until innet switch show tor | grep --quiet 'reachable.*yes'; do sleep 0.2; done
env --unset=INNET_TLS innet pbox bench 10.0.0.3:19791 --workers 1 --megabytes 0.1 --steps 1

systemctl stop $services
for service in $services; do
    systemctl show --property=Result,ActiveState --value $service | xargs echo $service
done > /results/services
journalctl --unit=innet-controller --output=cat --no-pager > /results/journal
